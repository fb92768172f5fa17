//! Messages between a supervisor and Trefoil over the control socket. Closing it is a message too: to the supervisor
//! that Trefoil is gone or no longer cares, to Trefoil that the supervisor is gone.

/// The only byte that Trefoil sends: end the command with [`crate::GRACE`].
pub(crate) const TERMINATE: u8 = b'T';

/// The length of a supervisor's message.
pub(crate) const MESSAGE_LEN: usize = 5;

/// What the supervisor sends: `Started`, then `Exited` or `Signalled`, then `Clean`; or `Failed` instead. On a
/// terminal, or with pipes, `Running` follows `Started`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Message {
    /// The command is about to run, as the leader of the session with this id.
    Started(i32),
    /// The command's program was started.
    Running,
    /// The command could not be started: an errno.
    Failed(i32),
    /// The command exited with a code.
    Exited(i32),
    /// The command was killed by a signal.
    Signalled(i32),
    /// Nothing that the command started is left.
    Clean,
}

impl Message {
    pub(crate) fn encode(self) -> [u8; MESSAGE_LEN] {
        let (tag, value) = match self {
            Self::Started(pid) => (b'P', pid),
            Self::Running => (b'R', 0),
            Self::Failed(errno) => (b'E', errno),
            Self::Exited(code) => (b'X', code),
            Self::Signalled(signal) => (b'S', signal),
            Self::Clean => (b'C', 0),
        };
        let [a, b, c, d] = value.to_le_bytes();
        [tag, a, b, c, d]
    }

    pub(crate) fn decode([tag, a, b, c, d]: [u8; MESSAGE_LEN]) -> Option<Self> {
        let value = i32::from_le_bytes([a, b, c, d]);
        Some(match tag {
            b'P' => Self::Started(value),
            b'R' => Self::Running,
            b'E' => Self::Failed(value),
            b'X' => Self::Exited(value),
            b'S' => Self::Signalled(value),
            b'C' => Self::Clean,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_a_round_trip() {
        for message in
            [Message::Started(7), Message::Failed(2), Message::Exited(-1), Message::Signalled(9), Message::Clean]
        {
            assert_eq!(Message::decode(message.encode()), Some(message));
        }
        assert_eq!(Message::decode(*b"?0000"), None);
    }
}
