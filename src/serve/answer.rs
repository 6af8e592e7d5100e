//! An answer on its way: the calls of one request, followed until they end, as one body or as a
//! stream of events. When it is dropped, because its client left, its calls are given up.

use super::actor::{Call, Event};
use super::choice::Choice;
use super::failure::Failure;
use super::prepare::Prepared;
use super::reply::{Head, Usage, json_body};
use super::routes::App;
use super::split::Message;
use crate::engine::Finish;
use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, timeout_at};

/// A stream that has nothing to say sends a comment this often, so that a client that left is noticed.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);

/// The calls of one request.
pub struct Answer {
    app: Arc<App>,
    head: Head,
    choices: Vec<Choice>,
    events: UnboundedReceiver<(usize, Event)>,
    deadline: Instant,
    /// Id of the first choice's call.
    first_id: u64,
    /// Which calls have not ended.
    open: Vec<bool>,
    /// Tokens of each prompt.
    prompts: Vec<usize>,
    include_usage: bool,
}

impl Drop for Answer {
    fn drop(&mut self) {
        for (at, _) in self.open.iter().enumerate().filter(|(_, open)| **open) {
            self.app.actor.cancel(self.first_id + at as u64);
        }
    }
}

impl Answer {
    /// Hands the calls to the engine. Fails when there is no place for all of them.
    pub fn start(
        app: Arc<App>,
        prepared: Prepared,
        head: Head,
        first_id: u64,
        deadline: Instant,
    ) -> Result<Answer, Failure> {
        let count = prepared.choices();
        let most = app.about.options.slots + app.limits.queue;
        if count > most {
            let field = if prepared.prompts.len() > 1 { "prompt" } else { "n" };
            return Err(Failure::invalid(format!(
                "{count} choices are more than the {most} that may be in flight: send several requests, or start \
                 the server with a longer --queue"
            ))
            .field(field));
        }
        let mut permits =
            app.permits.clone().try_acquire_many_owned(count as u32).map_err(|_| Failure::busy())?;
        let (sender, events) = unbounded_channel();
        let choice = |_| {
            Choice::new(
                app.about.model.clone(),
                prepared.ask.sampling.stop.clone(),
                prepared.splitter.clone(),
            )
        };
        let mut answer = Answer {
            choices: (0..count).map(choice).collect(),
            events,
            deadline,
            first_id,
            open: Vec::with_capacity(count),
            prompts: prepared.prompts.iter().map(Vec::len).collect(),
            include_usage: prepared.ask.include_usage,
            app,
            head,
        };
        for (choice, request) in prepared.calls(answer.head.seed, first_id).into_iter().enumerate() {
            let permit = permits.split(1).expect("one permit was taken for each call");
            if !answer.app.actor.submit(Call { request, choice, events: sender.clone(), permit }) {
                return Err(Failure::internal("the engine has ended: restart the server"));
            }
            answer.open.push(true);
        }
        Ok(answer)
    }

    fn ended(&self) -> bool {
        !self.open.contains(&true)
    }

    /// What happens next, until a time; `None` when nothing does.
    async fn next(&mut self, until: Instant) -> Result<Option<(usize, Event)>, Failure> {
        match timeout_at(until.min(self.deadline), self.events.recv()).await {
            Ok(Some((_, Event::Failed(why)))) => Err(Failure::internal(why)),
            Ok(Some((index, event))) => {
                if matches!(event, Event::Done(_)) {
                    self.open[index] = false;
                }
                Ok(Some((index, event)))
            }
            Ok(None) => Err(Failure::internal("the engine has ended: restart the server")),
            Err(_) if Instant::now() >= self.deadline => {
                Err(Failure::timed_out(self.app.limits.request_time.as_secs_f64()))
            }
            Err(_) => Ok(None),
        }
    }
}

/// The answer in one body.
pub async fn whole(mut answer: Answer) -> Result<Response, Failure> {
    let mut messages = vec![Message::default(); answer.choices.len()];
    let mut reasons = vec![Finish::Length; answer.choices.len()];
    while !answer.ended() {
        let Some((index, event)) = answer.next(answer.deadline).await? else { continue };
        let deltas = match event {
            Event::Tokens(sampled) => answer.choices[index].push(sampled)?,
            Event::Done(outcome) => {
                reasons[index] = outcome.finish;
                answer.choices[index].end(&outcome)?
            }
            Event::Failed(why) => return Err(Failure::internal(why)),
        };
        deltas.into_iter().for_each(|delta| messages[index].add(delta));
    }
    let model = answer.app.about.model.clone();
    let mut choices = Vec::with_capacity(messages.len());
    for (index, message) in messages.iter().enumerate() {
        let choice = &mut answer.choices[index];
        let reason = choice.reason(reasons[index]);
        choices.push(answer.head.choice(&model, index, choice, message, reason)?);
    }
    Ok(json_body(&answer.head.whole(choices, answer.usage())))
}

/// The answer as server-sent events.
pub fn stream(answer: Answer) -> Response {
    let mut ready = VecDeque::new();
    if answer.head.chat {
        for index in 0..answer.choices.len() {
            ready.push_back(event(&answer.head.chunk(vec![answer.head.opening(index)], answer.no_usage())));
        }
    }
    let live = Live { answer: Some(answer), ready };
    let events = futures_util::stream::unfold(live, |mut live| async move {
        while live.ready.is_empty() && live.answer.is_some() {
            live.advance().await;
        }
        live.ready.pop_front().map(|bytes| (Ok::<Bytes, Infallible>(bytes), live))
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache"),
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, Body::from_stream(events)).into_response()
}

struct Live {
    /// The answer while it grows.
    answer: Option<Answer>,
    /// Events to send.
    ready: VecDeque<Bytes>,
}

impl Live {
    async fn advance(&mut self) {
        let Some(answer) = &mut self.answer else { return };
        match answer.advance().await {
            Ok(events) => self.ready.extend(events),
            Err(failure) => {
                self.ready.push_back(event(&failure.body()));
                self.answer = None;
                return;
            }
        }
        if answer.ended() {
            if answer.include_usage {
                self.ready.push_back(event(&answer.head.chunk(Vec::new(), Some(Some(answer.usage())))));
            }
            self.ready.push_back(Bytes::from_static(b"data: [DONE]\n\n"));
            self.answer = None;
        }
    }
}

impl Answer {
    /// What all choices took, once they have ended. Choices of one prompt share it: taken over is what the first of
    /// them did not compute.
    fn usage(&self) -> Usage {
        let of_each = self.choices.len() / self.prompts.len().max(1);
        let shared = |choices: &[Choice]| choices.iter().map(|choice| choice.shared_tokens).min().flatten();
        Usage {
            prompt: self.prompts.iter().sum(),
            shared: self.choices.chunks(of_each.max(1)).map(shared).sum(),
            completion: self.choices.iter().map(|choice| choice.count).sum(),
            thought: self.head.chat.then(|| self.choices.iter().map(|choice| choice.thought_tokens).sum()),
        }
    }

    /// The usage of an event that has none: a null field when the client asked for usage.
    fn no_usage(&self) -> Option<Option<Usage>> {
        self.include_usage.then_some(None)
    }

    /// Waits for something to happen; the events that tell of it.
    async fn advance(&mut self) -> Result<Vec<Bytes>, Failure> {
        let Some((index, happened)) = self.next(Instant::now() + SIGN_OF_LIFE).await? else {
            return Ok(vec![Bytes::from_static(b": still there\n\n")]);
        };
        let choice = &mut self.choices[index];
        let (deltas, reason) = match happened {
            Event::Tokens(sampled) => (choice.push(sampled)?, None),
            Event::Done(outcome) => (choice.end(&outcome)?, Some(choice.reason(outcome.finish))),
            Event::Failed(why) => return Err(Failure::internal(why)),
        };
        let pieces = self.head.pieces(&self.app.about.model, index, choice, deltas, reason)?;
        Ok(pieces.into_iter().map(|piece| event(&self.head.chunk(vec![piece], self.no_usage()))).collect())
    }
}

/// One server-sent event. JSON has no line breaks of its own.
fn event(body: &Value) -> Bytes {
    Bytes::from(format!("data: {body}\n\n"))
}
