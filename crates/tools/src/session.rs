//! Tools that touch the session and not the disk: the todo list, questions to the human, and skills.

pub(crate) mod question;
pub(crate) mod skill;
pub(crate) mod todo;
