//! A backend without a network, for tests of what drives one: a function writes the answers,
//! bytes are the tokens, and a call takes one step per token in one of a fixed number of slots.

use super::{Backend, Completion, Finish, Identity, Request};
use crate::environment::{Message, Role};
use crate::error::{Error, Result};
use crate::hash::sha256_hex;
use std::collections::VecDeque;
use std::time::Instant;

/// The token that ends a turn; all lower ids are bytes.
pub const END_OF_TURN: u32 = 256;

type Answer = Box<dyn Fn(&Request, &str) -> String + Send>;

/// The backend.
pub struct Scripted {
    identity: Identity,
    answer: Answer,
    queue: VecDeque<(Request, Instant)>,
    running: Vec<Running>,
    log: Vec<u64>,
}

struct Running {
    request: Request,
    submitted: Instant,
    /// The whole answer, end-of-turn token included.
    script: Vec<u32>,
    sampled: usize,
}

impl Scripted {
    /// `answer(request, text of its context)` is what the assistant says; `name` makes the
    /// identity (two names are two models).
    pub fn new(name: &str, slots: usize, answer: impl Fn(&Request, &str) -> String + Send + 'static) -> Self {
        let slots = slots.max(1);
        Scripted {
            identity: Identity {
                model_sha256: sha256_hex(format!("scripted model {name}").as_bytes()),
                dtype: Some("f32".into()),
                slots: Some(slots),
                engine_sha256: sha256_hex(format!("scripted engine, {slots} slots").as_bytes()),
            },
            answer: Box::new(answer),
            queue: VecDeque::new(),
            running: Vec::new(),
            log: Vec::new(),
        }
    }

    /// Ids of all calls in the order in which they started.
    pub fn started(&self) -> &[u64] {
        &self.log
    }
}

/// Text of byte tokens; an end of turn is shown as a line break.
fn text_of(tokens: &[u32]) -> String {
    let bytes: Vec<u8> = tokens.iter().map(|t| u8::try_from(*t).unwrap_or(b'\n')).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn push_message(tokens: &mut Vec<u32>, message: &Message) {
    let role = match message.role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
    };
    tokens.extend(format!("[{role}]\n{}", message.content).bytes().map(u32::from));
    tokens.push(END_OF_TURN);
}

fn open_assistant(tokens: &mut Vec<u32>) {
    tokens.extend("[assistant]\n".bytes().map(u32::from));
}

impl Backend for Scripted {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn render(&self, messages: &[Message]) -> Result<Vec<u32>> {
        let mut tokens = Vec::new();
        for message in messages {
            push_message(&mut tokens, message);
        }
        open_assistant(&mut tokens);
        Ok(tokens)
    }

    fn extend(&self, context: &[u32], sampled: &[u32], next: &Message) -> Result<Vec<u32>> {
        let mut tokens =
            [context, sampled.strip_suffix(&[END_OF_TURN]).unwrap_or(sampled), &[END_OF_TURN]].concat();
        push_message(&mut tokens, next);
        open_assistant(&mut tokens);
        Ok(tokens)
    }

    fn submit(&mut self, request: Request) -> Result<()> {
        let place = format!("request {}", request.id);
        if request.tokens.is_empty() {
            return Err(Error::invalid("the context is empty").at(place));
        }
        if request.sampling.max_tokens == 0 {
            return Err(Error::invalid("max_tokens is 0: nothing would be sampled").at(place));
        }
        let waiting = self.queue.iter().map(|(r, _)| r.id);
        if waiting.chain(self.running.iter().map(|r| r.request.id)).any(|id| id == request.id) {
            return Err(Error::invalid("another call of this id is in flight").at(place));
        }
        self.queue.push_back((request, Instant::now()));
        Ok(())
    }

    fn step(&mut self) -> Result<Vec<Completion>> {
        while self.running.len() < self.width() {
            let Some((request, submitted)) = self.queue.pop_front() else { break };
            let mut script: Vec<u32> =
                (self.answer)(&request, &text_of(&request.tokens)).bytes().map(u32::from).collect();
            script.push(END_OF_TURN);
            self.log.push(request.id);
            self.running.push(Running { request, submitted, script, sampled: 0 });
        }
        let mut done = Vec::new();
        let mut rest = Vec::new();
        for mut run in self.running.drain(..) {
            run.sampled += 1;
            let tokens = &run.script[..run.sampled];
            let content = tokens.strip_suffix(&[END_OF_TURN]).unwrap_or(tokens);
            let mut text = text_of(content);
            let cut = run.request.sampling.stop.iter().filter_map(|s| text.find(s.as_str())).min();
            let finish = if cut.is_some() || run.sampled == run.script.len() {
                Some(Finish::Stop)
            } else {
                (run.sampled >= run.request.sampling.max_tokens).then_some(Finish::Length)
            };
            let Some(finish) = finish else {
                rest.push(run);
                continue;
            };
            text.truncate(cut.unwrap_or(text.len()));
            done.push(Completion {
                id: run.request.id,
                tokens: tokens.to_vec(),
                text,
                finish,
                prompt_tokens: Some(run.request.tokens.len()),
                shared_tokens: None,
                completion_tokens: Some(tokens.len()),
                // The script is the only thing that could have been said.
                logprobs: run.request.sampling.logprobs.then(|| vec![0.0; tokens.len()]),
                thought: None,
                top_logprobs: (run.request.sampling.top_logprobs > 0)
                    .then(|| tokens.iter().map(|id| vec![(*id, 0.0)]).collect()),
                wall_ms: run.submitted.elapsed().as_millis() as u64,
            });
        }
        self.running = rest;
        Ok(done)
    }

    fn in_flight(&self) -> usize {
        self.queue.len() + self.running.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Sampling, Stream};
    use super::*;

    fn request(id: u64, tokens: Vec<u32>, sampling: Sampling) -> Request {
        let stream = Stream { seed: 0, task_id: "t".into(), rollout: 0, turn: 0 };
        Request { id, tokens, adapter: None, sampling, stream }
    }

    fn drain(backend: &mut Scripted) -> Vec<Completion> {
        let mut done = Vec::new();
        while backend.in_flight() > 0 {
            done.extend(backend.step().unwrap());
        }
        done
    }

    fn echo(slots: usize) -> Scripted {
        Scripted::new("echo", slots, |_, text| text.lines().rev().nth(1).unwrap_or_default().to_string())
    }

    #[test]
    fn it_answers_from_the_rendered_conversation_over_several_turns() {
        let mut backend = echo(2);
        let context = backend.render(&[Message::user("one")]).unwrap();
        backend.submit(request(1, context.clone(), Sampling::greedy(10))).unwrap();
        let first = drain(&mut backend).remove(0);
        assert_eq!((first.text.as_str(), first.tokens.len(), first.finish), ("one", 4, Finish::Stop));
        let next = backend.extend(&context, &first.tokens, &Message::user("two")).unwrap();
        let whole = [Message::user("one"), Message::assistant("one"), Message::user("two")];
        assert_eq!(next, backend.render(&whole).unwrap());
        assert_eq!(backend.extend(&context, &first.tokens[..3], &Message::user("two")).unwrap(), next);
        backend.submit(request(2, next, Sampling::greedy(10))).unwrap();
        assert_eq!(drain(&mut backend)[0].text, "two");
    }

    #[test]
    fn slots_limit_what_runs_and_order_is_arrival() {
        let mut backend = Scripted::new("x", 2, |r, _| "y".repeat(r.id as usize));
        for id in [3, 1, 2, 9] {
            backend
                .submit(request(id, vec![65], Sampling { logprobs: true, ..Sampling::greedy(5) }))
                .unwrap();
        }
        assert!(backend.submit(request(9, vec![65], Sampling::greedy(5))).is_err());
        assert!(backend.submit(request(10, vec![], Sampling::greedy(5))).is_err());
        backend.step().unwrap();
        assert_eq!(backend.started(), [3, 1]);
        let done = drain(&mut backend);
        assert_eq!(
            done.iter().map(|c| (c.id, c.finish)).collect::<Vec<_>>(),
            [(1, Finish::Stop), (3, Finish::Stop), (2, Finish::Stop), (9, Finish::Length)]
        );
        assert_eq!(done[3].logprobs.as_ref().unwrap().len(), 5);
    }

    #[test]
    fn stop_strings_cut_the_text_and_keep_the_ids() {
        let mut backend = Scripted::new("x", 1, |_, _| "abc STOP def".into());
        let sampling = Sampling { stop: vec![" STOP".into()], ..Sampling::greedy(50) };
        backend.submit(request(1, vec![65], sampling)).unwrap();
        let done = drain(&mut backend).remove(0);
        assert_eq!((done.text.as_str(), done.tokens.len(), done.finish), ("abc", 8, Finish::Stop));
    }
}
