//! Sessions that work for another session. `task` describes the tool to the model, `delegate` runs a call of it in a
//! child session, and [`store::TaskLink`] is the durable row that ties the two together. Nothing in this room calls a model:
//! a child is an ordinary session with a turn of its own.

pub(crate) mod background;
pub(crate) mod control;
pub(crate) mod delegate;
pub(crate) mod subtask;
pub(crate) mod task;
