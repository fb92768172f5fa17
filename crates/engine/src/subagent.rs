//! Sessions that work for another one. The `task` tool describes a task to the model, `delegate` runs it in a child session, and
//! `task_link` is the durable record that ties the two together. Nothing in here calls a model: a child is an ordinary session
//! with a turn of its own.

pub(crate) mod background;
pub(crate) mod control;
pub(crate) mod delegate;
pub(crate) mod subtask;
pub(crate) mod task;
pub(crate) mod task_link;
