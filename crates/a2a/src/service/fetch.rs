//! Files of messages that are on the web.
