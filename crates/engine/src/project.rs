//! Everything known about a directory: its project, configuration, agents, models, MCP servers and files. This file has
//! projects as clients see them, and moving sessions between the directories of one.

pub(crate) mod agents;
pub(crate) mod config_reload;
pub(crate) mod files;
pub(crate) mod instance;
pub(crate) mod mcp;
pub(crate) mod models;
pub(crate) mod projects;
pub(crate) mod settings;

use std::path::Path;

use api::{EventBody, HostError, Project, ProjectCommands, ProjectIcon, Scope, Session, SessionId};
use store::{Batch, Location, SessionChange, SessionPlace};

use crate::access::Right;
use crate::error::store_error;
use crate::{Engine, Inner};
use instance::Instance;

/// The directory OpenCode reports for events that belong to no directory.
const EVERYWHERE: &str = "global";

/// A change to a project. Absent fields stay as they are.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct UpdateProject {
    /// A new display name.
    pub name: Option<String>,
    /// A new icon.
    pub icon: Option<ProjectIcon>,
    /// New commands.
    pub commands: Option<ProjectCommands>,
}

impl Engine {
    /// The database. Faces store their own records there.
    pub fn store(&self) -> &store::Store {
        &self.inner.store
    }

    /// Where configuration comes from, and where data is stored.
    pub fn inputs(&self) -> &config::Inputs {
        &self.inner.settings.inputs
    }

    /// Like [`api::WorkspaceHost::files`], and whether the list is complete: a huge directory is cut off.
    pub async fn list_files(&self, scope: &Scope, path: &str) -> Result<(Vec<api::FileNode>, bool), HostError> {
        files::list(self.inner.instance(scope.directory.as_ref()), path.to_owned()).await
    }

    /// Files, directories or both whose path matches, best match first. Directories end in a slash.
    pub async fn find_paths(
        &self,
        scope: &Scope,
        query: &str,
        entries: tools::Entries,
        limit: usize,
    ) -> Result<Vec<String>, HostError> {
        files::find(self.inner.instance(scope.directory.as_ref()), query.to_owned(), entries, limit).await
    }

    /// The known projects, that of the scope included.
    pub(crate) fn known_projects(&self, scope: &Scope) -> Result<Vec<Project>, HostError> {
        let mut projects = self.inner.store.projects().map_err(store_error)?;
        let current = self.inner.project_of(&self.inner.instance(scope.directory.as_ref()))?;
        match projects.iter_mut().find(|project| project.id == current.id) {
            Some(project) => *project = current,
            None => projects.push(current),
        }
        Ok(projects)
    }

    /// A project by id: the scope's own, or a stored one.
    pub fn project_by_id(&self, scope: &Scope, id: &str) -> Result<Project, HostError> {
        let instance = self.inner.instance(scope.directory.as_ref());
        if instance.project.id == id {
            return self.inner.project_of(&instance);
        }
        let known = self.inner.store.project(id).map_err(store_error)?;
        known.map(current_trees).ok_or_else(|| HostError::not_found("project", id))
    }

    /// Changes the display settings of a project.
    pub async fn update_project(&self, scope: &Scope, id: &str, change: UpdateProject) -> Result<Project, HostError> {
        let mut project = self.project_by_id(scope, id)?;
        project.name = change.name.or(project.name);
        project.icon = match (change.icon, project.icon) {
            (Some(new), Some(old)) => Some(merged(new, old)),
            (new, old) => new.or(old),
        };
        project.commands = change.commands.or(project.commands);
        self.put_project(project).await
    }

    /// Stores a project and publishes the change.
    pub async fn put_project(&self, project: Project) -> Result<Project, HostError> {
        self.inner.put_project(project).await
    }

    /// Moves a session to another directory of its project, and into a workspace or out of one.
    pub async fn move_session(
        &self,
        id: &SessionId,
        directory: &str,
        workspace: Option<String>,
    ) -> Result<Session, HostError> {
        self.check(id, Right::Work)?;
        let session = self.inner.session(id)?;
        self.inner.ensure_idle(id)?;
        if !Path::new(directory).is_dir() {
            return Err(HostError::Invalid(format!("{directory} is not a directory")));
        }
        let instance = self.inner.instance(directory.as_ref());
        if instance.project.id != session.project_id {
            return Err(HostError::Invalid(format!("{directory} belongs to another project than {id}")));
        }
        let mut batch = Batch::new(&instance.place).durable();
        let place = SessionPlace { directory: directory.to_owned(), path: instance.path(), workspace };
        batch.change_session(id, SessionChange { place: Some(place), is_activity: true, ..SessionChange::default() });
        self.inner.store.commit(batch).await.map_err(store_error)?;
        self.inner.session(id)
    }
}

impl Inner {
    pub(crate) async fn put_project(&self, mut project: Project) -> Result<Project, HostError> {
        project.time.updated = api::now();
        let mut batch = Batch::new(&Location::new(EVERYWHERE, project.id.as_str())).durable();
        batch.project(&project);
        batch.event(EventBody::ProjectUpdated(Box::new(project.clone())));
        self.store.commit(batch).await.map_err(store_error)?;
        Ok(project)
    }

    /// The project of a directory: the stored record with its current working trees.
    pub(crate) fn project_of(&self, instance: &Instance) -> Result<Project, HostError> {
        let own = instance.project.clone();
        let known = self.store.project(&own.id).map_err(store_error)?.unwrap_or_else(|| own.clone());
        // Repositories without a first commit share one row, so these fields come from the directory.
        Ok(current_trees(Project { worktree: own.worktree, vcs: own.vcs, ..known }))
    }
}

impl Instance {
    /// The directory relative to the root of its working tree, or to `/` if there is none.
    pub(crate) fn path(&self) -> String {
        let root = if self.project.vcs.is_some() { self.worktree() } else { Path::new("/") };
        let path = self.directory.strip_prefix(root).ok();
        path.map(|path| path.to_string_lossy().into_owned()).unwrap_or_default()
    }
}

fn merged(new: ProjectIcon, old: ProjectIcon) -> ProjectIcon {
    ProjectIcon {
        url: new.url.or(old.url),
        replacement: new.replacement.or(old.replacement),
        color: new.color.or(old.color),
    }
}

fn current_trees(project: Project) -> Project {
    let trees = if project.vcs.is_some() { config::linked_trees(Path::new(&project.worktree)) } else { Vec::new() };
    let sandboxes = trees.iter().map(|tree| tree.to_string_lossy().into_owned()).collect();
    Project { sandboxes, ..project }
}
