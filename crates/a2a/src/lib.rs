//! The A2A face: an agent runtime as a service for other agents, in both lines of the protocol (0.3 and 1.0), and a client
//! of other A2A services.
//!
//! * `model`, `event`, `call`, `error`, `principal`: what both lines of the protocol say, in one vocabulary.
//! * `wire`: the only place that knows how a line or a transport spells it. Pure: bytes in, values out.
//! * `card`: agent cards and the contracts that they publish. Pure.
//! * `records`: durable rows of this face, on the store's records.
//! * `service`: tasks, streams, interrupts and their owners, on any [`AgentRuntime`](api::AgentRuntime).
//! * `extension`: the methods `opencode.*` and `a2a.interrupt.*`.
//! * `push`: notifications to webhooks.
//! * `http`: requests to calls, replies to responses.
//! * `grpc` (with the feature of that name): the messages of gRPC as the JSON of 1.0.
//! * `client`: the other side of the protocol. `runner`: agents of other machines as subagents.
//!
//! Invariants: a task's row is durable before its prompt goes out. The first terminal state wins. Every access to a task,
//! session, interrupt or push configuration passes `service::access`. Nothing here reads the environment.

mod call;
pub mod card;
pub mod client;
mod credentials;
mod depth;
mod error;
mod event;
mod extension;
#[cfg(feature = "grpc")]
mod grpc;
mod http;
mod model;
mod principal;
mod push;
pub mod records;
mod runner;
pub mod service;
mod settings;
pub mod wire;

pub use call::{Call, ListRequest, PushAuthentication, PushConfig, Reply, SendOptions, SendRequest, TaskPage};
pub use credentials::{Credentials, CredentialsError, Scheme};
pub use error::{Error, ErrorKind};
pub use event::{Block, Lane, NumberedEvent, StreamMark, TaskEvent};
pub use extension::Extensions;
pub use http::{DocumentError, Endpoint, EndpointOptions, MOUNT_PATH};
pub use model::{Artifact, ArtifactId, Content, Line, Message, Part, Role, Task, TaskState, TaskStatus};
pub use principal::{Capabilities, Principal};
pub use runner::Runner;
pub use settings::{
    Backend, CLIENT_SETTINGS, ClientSetting, ExecutionBoundary, SETTINGS, Setting, SettingError, Settings,
};
