//! Tells clients that what they know of a directory is stale: they ask again.

use api::{EventBody, Scope};
use store::Place;

use crate::State;

impl State {
    /// Forgets what was loaded for a directory, and ends its terminals. Running turns go on with it.
    pub(crate) fn dispose(&self, scope: &Scope) {
        self.ptys.dispose(self, Some(&scope.directory));
        let project = self.engine.loaded(scope).project.id.clone();
        self.engine.reload(scope);
        self.reloaded(&[Place::new(scope.directory.as_str(), project)]);
    }

    /// What was loaded for these places is gone.
    pub(crate) fn reloaded(&self, places: &[Place]) {
        for place in places {
            let directory = place.directory.to_string();
            self.tell(&place.directory, &place.project, EventBody::InstanceDisposed { directory });
        }
    }

    /// What was loaded for any place is gone; these were.
    pub(crate) fn reloaded_all(&self, places: &[Place]) {
        self.reloaded(places);
        self.tell("global", "", EventBody::GlobalDisposed {});
    }
}
