//! Opening a database file, and looking at one that is not open.

use std::path::Path;
use std::sync::{Arc, Mutex, mpsc as std_mpsc};

use rusqlite::Connection;
use tokio::sync::{Semaphore, mpsc};

use crate::error::StoreError;
use crate::feed::Feed;
use crate::lease::Peers;
use crate::long_read::LongReads;
use crate::sqlite::file::data_loss::{self, DataLoss, TipFile};
use crate::sqlite::file::identity::FileIdentity;
use crate::sqlite::file::read_only::{self, Access};
use crate::sqlite::lease::{OwnerLock, Owners, signal};
use crate::sqlite::read::Readers;
use crate::sqlite::upkeep::space::{self, DiskUsage};
use crate::sqlite::write::{self, Observer, Writer};
use crate::sqlite::{log, schema};
use crate::store::{BUSY_TIMEOUT, Inner, Options, Store};

/// An open database file.
struct OpenedFile {
    conn: Connection,
    data_loss: Option<DataLoss>,
    identity: Option<Arc<FileIdentity>>,
    access: Access,
}

impl Store {
    /// Opens or creates a database (directory 0700, file 0600) and migrates it to the newest schema. A damaged file,
    /// another program's database and a newer schema are refused and left untouched.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_with(path, Options::default())
    }

    /// Like [`open`](Self::open), with other limits.
    pub fn open_with(path: &Path, options: Options) -> Result<Self, StoreError> {
        let (conn, data_loss) =
            schema::open(path, options.busy_timeout).map_err(|error| read_only::explain_open_error(path, error))?;
        if let Some(data_loss) = &data_loss {
            tracing::error!("{data_loss}");
        }
        let identity = Some(Arc::new(FileIdentity::of(path)?));
        let (owners, lock) = Owners::register(path)?;
        let opened = OpenedFile { conn, data_loss, identity, access: Access::Shared };
        Self::assemble(path, &options, opened, Arc::new(owners), Ok(lock))
    }

    /// Like [`open_with`](Self::open_with), but falls back to a read-only store if the disk is full or the folder is
    /// read-only. A missing database then has no rows.
    pub fn open_or_read_only(path: &Path, options: Options) -> Result<Self, StoreError> {
        let why = match Self::open_with(path, options.clone()) {
            Ok(store) => return Ok(store),
            Err(why) => why,
        };
        let busy = options.busy_timeout;
        let access = read_only::find_access(path, busy, why.clone())?;
        let conn = access.open(path, busy).map_err(|error| error.at(path))?;
        let opened = OpenedFile { conn, data_loss: None, identity: None, access };
        Self::assemble(
            path,
            &Options { max_pages: None, ..options },
            opened,
            Arc::new(Owners::read_only(path)),
            Err(why),
        )
    }

    /// `lock` is this process's lock, or the reason why the store is read-only.
    fn assemble(
        path: &Path,
        options: &Options,
        opened: OpenedFile,
        owners: Arc<dyn Peers>,
        lock: Result<OwnerLock, StoreError>,
    ) -> Result<Self, StoreError> {
        let OpenedFile { conn, data_loss, identity, access } = opened;
        let (lock, read_only_reason) = match lock {
            Ok(lock) => (Some(lock), None),
            Err(why) => (None, Some(why)),
        };
        if let Some(pages) = options.max_pages {
            let set = conn.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()));
            set.map_err(|error| StoreError::from(error).at(path))?;
        }
        let feed = Arc::new(Feed::new(options.watch_bytes));
        let tip = log::tip(&conn).map_err(|error| error.at(path))?;
        feed.start(tip);
        let (writer_messages, queue) = std_mpsc::channel();
        let (signals, signal_receiver) = mpsc::channel(signal::QUEUE);
        let observer = Arc::new(Observer::default());
        let mut writer = Writer {
            conn,
            observer: observer.clone(),
            path: path.to_owned(),
            identity: identity.clone(),
            tip: read_only_reason.is_none().then(|| TipFile::open(path, tip)).transpose()?,
            owners: owners.clone(),
            feed: feed.clone(),
            signals,
            busy: options.busy_timeout,
            keep: options.keep_events.max(1),
            keep_bytes: options.keep_event_bytes,
            crash_after: options.crash_after,
            state: write::WriterState::default(),
        };
        writer.watch_wal().map_err(|error| error.at(path))?;
        let writer = Arc::new(Mutex::new(writer));
        let run_writer = {
            let writer = writer.clone();
            move || write::run(&writer, &queue)
        };
        let thread = match read_only_reason {
            None => Some(std::thread::Builder::new().name("store-writer".to_owned()).spawn(run_writer)),
            Some(_) => None,
        };
        Ok(Self {
            inner: Arc::new(Inner {
                writer_messages: thread.is_some().then_some(writer_messages),
                slots: Arc::new(Semaphore::new(write::QUEUE)),
                writer,
                thread: thread.transpose().map_err(|error| StoreError::io(path, &error))?,
                feed,
                observer,
                readers: Arc::new(Readers::new(path, options.busy_timeout, identity.clone(), access)),
                long_reads: LongReads::new(options.schedule.is_some()),
                identity,
                write_retry_timeout: options.write_retry_timeout,
                data_loss,
                owners,
                schedule: options.schedule.clone(),
                signals: Mutex::new(Some(signal_receiver)),
                read_only_reason,
                lock,
            }),
            snapshot: None,
        })
    }

    /// Whether the disk that holds a database is full.
    pub fn is_disk_full(path: &Path) -> bool {
        read_only::is_disk_full(path)
    }

    /// Checks a whole database file for damage without changing it.
    pub fn check(path: &Path) -> Result<(), StoreError> {
        schema::check(path, BUSY_TIMEOUT)
    }

    /// Reports what uses the space of a database file, without changing it.
    pub fn disk_usage(path: &Path) -> Result<DiskUsage, StoreError> {
        space::disk_usage(path, BUSY_TIMEOUT)
    }

    /// Returns the commits that a database file lost since it was last open. Changes nothing.
    pub fn detect_data_loss(path: &Path) -> Result<Option<DataLoss>, StoreError> {
        schema::detect_data_loss(path, BUSY_TIMEOUT)
    }

    /// The reports of a database's earlier data losses, oldest first.
    pub fn past_data_losses(path: &Path) -> Vec<String> {
        data_loss::reports(path)
    }
}
