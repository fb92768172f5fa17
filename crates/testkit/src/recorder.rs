//! Records a host's events.

use std::sync::{Arc, Mutex};

use api::{Event, EventBody, Host, WatchItem, WatchScope};
use futures::StreamExt;
use futures::stream::BoxStream;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::WAIT;

/// The maximum number of events; a test that produces more is a mistake.
const MAX_EVENTS: usize = 200_000;

/// Collects the events of a host from its creation on.
pub struct Recorder {
    log: Arc<Log>,
    count: watch::Receiver<usize>,
    mark: usize,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Log {
    events: Mutex<Vec<Arc<Event>>>,
    end: Mutex<Option<String>>,
}

impl Recorder {
    /// Records all events of a host.
    pub async fn new(host: Arc<dyn Host>) -> Self {
        Self::scoped(host, WatchScope::All).await
    }

    /// Records the events of a directory or session.
    pub async fn scoped(host: Arc<dyn Host>, scope: WatchScope) -> Self {
        Self::follow(host.watch(scope, None).await.expect("the host can be watched"))
    }

    /// Records a watch stream.
    pub fn follow(stream: BoxStream<'static, WatchItem>) -> Self {
        let log = Arc::new(Log::default());
        let (count_sender, count) = watch::channel(0);
        let task = tokio::spawn(record(stream, log.clone(), count_sender));
        Self { log, count, mark: 0, task }
    }

    /// Waits for the first matching event after the last one found this way (so two waits in a row mean two events in
    /// that order). Fails the test if none arrives within [`WAIT`].
    pub async fn wait_for(&mut self, fits: impl Fn(&EventBody) -> bool) -> Arc<Event> {
        let search = async {
            loop {
                let seen = *self.count.borrow_and_update();
                let events = self.log.events.lock().unwrap()[self.mark..seen].to_vec();
                if let Some(index) = events.iter().position(|event| fits(&event.body)) {
                    self.mark += index + 1;
                    return Some(events[index].clone());
                }
                self.count.changed().await.ok()?;
            }
        };
        match timeout(WAIT, search).await {
            Ok(Some(event)) => event,
            Ok(None) => {
                let end = self.log.end.lock().unwrap().clone().unwrap_or_else(|| "the stream ended".to_owned());
                panic!("no event fits, and none will come: {end}. {}", self.describe())
            }
            Err(_) => panic!("no event fits within {WAIT:?}. {}", self.describe()),
        }
    }

    /// Waits until a session is idle (again).
    pub async fn wait_idle(&mut self, session: &api::SessionId) {
        self.wait_for(|body| matches!(body, EventBody::SessionIdle { session_id } if session_id == session)).await;
    }

    /// All events so far.
    pub fn events(&self) -> Vec<Arc<Event>> {
        self.log.events.lock().unwrap().clone()
    }

    /// The names of all events so far, for example `session.idle`.
    pub fn names(&self) -> Vec<String> {
        self.events().iter().map(|event| name(&event.body)).collect()
    }

    fn describe(&self) -> String {
        let events = self.events();
        let line = |(index, event): (usize, &Arc<Event>)| {
            let mark = if index < self.mark { "-" } else { " " };
            let text = serde_json::to_string(&event.body).unwrap_or_default();
            format!("\n {mark} {}", text.chars().take(240).collect::<String>())
        };
        let lines: String = events.iter().enumerate().map(line).collect();
        format!("{} events came ('-' marks those before the last find):{lines}", events.len())
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn record(mut stream: BoxStream<'static, WatchItem>, log: Arc<Log>, count: watch::Sender<usize>) {
    let end = loop {
        match stream.next().await {
            Some(WatchItem::Frame(frame)) => {
                let Some(event) = frame.event() else {
                    break format!("a frame is no event: {}", String::from_utf8_lossy(frame.json()));
                };
                let mut events = log.events.lock().unwrap();
                if events.len() == MAX_EVENTS {
                    break format!("more than {MAX_EVENTS} events");
                }
                events.push(event);
                count.send_replace(events.len());
            }
            Some(WatchItem::Resync(reason)) => break format!("the host wants a resync: {reason}"),
            Some(WatchItem::Lagged) => break "the recorder was cut as too slow".to_owned(),
            None => break "the stream ended".to_owned(),
        }
    };
    *log.end.lock().unwrap() = Some(end);
}

fn name(body: &EventBody) -> String {
    let value = serde_json::to_value(body).expect("events serialise");
    value["type"].as_str().map_or_else(|| Value::Null.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use api::Frame;

    use super::*;

    fn frame(body: EventBody) -> WatchItem {
        let event = Event::new(body);
        let json = serde_json::to_vec(&event).unwrap().into();
        WatchItem::Frame(Frame::new(None, "".into(), "".into(), Arc::new(event), json))
    }

    #[tokio::test]
    async fn waits_go_forward_only() {
        let edits = ["a", "b", "a"].map(|file| frame(EventBody::FileEdited { file: file.to_owned() }));
        let mut recorder = Recorder::follow(futures::stream::iter(edits).boxed());
        let is = |wanted: &'static str| move |body: &EventBody| matches!(body, EventBody::FileEdited { file } if file == wanted);
        recorder.wait_for(is("b")).await;
        recorder.wait_for(is("a")).await;
        assert_eq!(recorder.names(), ["file.edited"; 3]);
    }

    #[tokio::test]
    #[should_panic(expected = "the recorder was cut as too slow. 1 events came")]
    async fn a_failure_says_what_came() {
        let items = [frame(EventBody::LspUpdated {}), WatchItem::Lagged];
        let mut recorder = Recorder::follow(futures::stream::iter(items).boxed());
        recorder.wait_for(|body| matches!(body, EventBody::GlobalDisposed {})).await;
    }
}
