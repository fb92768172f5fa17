//! Tells clients that what they know of a directory is stale, so that they read it again.

use api::{EventBody, Scope};
use store::Location;

use crate::State;

impl State {
    /// Drops what was loaded for a directory, and ends its terminals. Running turns keep what they have.
    pub(crate) fn dispose(&self, scope: &Scope) {
        self.terminals.dispose(self, Some(&scope.directory));
        let project = self.engine.loaded(scope).project.id.clone();
        self.engine.reload(scope);
        self.announce_reload(&[Location::new(scope.directory.as_str(), project)]);
    }

    /// Announces that what was loaded for these places was dropped.
    pub(crate) fn announce_reload(&self, places: &[Location]) {
        for place in places {
            let directory = place.directory.to_string();
            self.publish(&place.directory, &place.project, EventBody::InstanceDisposed { directory });
        }
    }

    /// Announces that everything loaded was dropped; `places` lists what it was.
    pub(crate) fn announce_global_reload(&self, places: &[Location]) {
        self.announce_reload(places);
        self.publish("global", "", EventBody::GlobalDisposed {});
    }
}
