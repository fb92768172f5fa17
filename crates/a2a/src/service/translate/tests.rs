use api::{MessageId, SessionId};

use super::*;

#[test]
fn nothing_is_known_of_a_turn_that_has_not_begun() {
    let translator = Translator::new(SessionId::new(), MessageId::new());
    assert!(!translator.has_begun());
    assert_eq!(translator.usage(), None);
}
