//! What the server keeps of directories, and how it forgets it.

use axum::http::Method;

use crate::error::Error;
use crate::operation::request::Call;
use crate::operation::{Data, Operation, operation};

pub fn operations() -> Vec<Operation> {
    vec![
        operation(
            Method::POST,
            "/instance/dispose",
            "instance.dispose",
            "Drop a directory's state: terminals end, configuration is read anew.",
            one,
        ),
        operation(Method::POST, "/global/dispose", "global.dispose", "The same for all directories.", all).global(),
    ]
}

async fn one(call: Call) -> Result<Data<bool>, Error> {
    call.state.dispose(&call.scope);
    Ok(Data(true))
}

async fn all(call: Call) -> Result<Data<bool>, Error> {
    call.state.ptys.dispose(&call.state, None);
    let places = call.state.engine.reload_below("/");
    call.state.reloaded_all(&places);
    Ok(Data(true))
}
