//! `rederive serve`: a model and its adapters over the OpenAI API, until it is asked to stop.

use super::device::DeviceArgs;
use super::progress::{Terminal, line};
use super::{STOP, print, until_stopped};
use crate::engine::local::{Engine, Options as Sizes};
use crate::error::{Error, Result};
use crate::model::{Lora, Model, Processor, Source};
use crate::serve::{Limits, Listen, Options, Server};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Tokens of a call when nothing is said and the model can hold more.
const CONTEXT: usize = 4096;

/// Environment variable that may hold the key.
const KEY: &str = "REDERIVE_API_KEY";

/// Options of the server.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  rederive serve smollm2-135m-instruct                       http://127.0.0.1:8000/v1, for this machine only
  rederive serve models/base --adapter mine=data/my-try/adapters/1 --slots 16
  rederive serve models/base --unix /run/user/1000/rederive.sock
  rederive serve models/base --host 0.0.0.0 --api-key-file key.txt

Clients choose the base model or an adapter by its name as `model`. Addresses: /v1/chat/completions, /v1/completions,
/v1/models, /health. The same request with the same `seed` gives the same answer, whatever else the server is doing;
without a `seed` a fresh one is drawn and returned. Beyond the API: `top_k`, `min_p`, `chat_template_kwargs`,
`return_token_ids`, and `thinking_budget`, the most tokens of a thought; `max_tokens` then counts what follows it.
What would change an answer and is not supported is refused by name.

Ctrl-C or SIGTERM: no new requests, running ones finish within --grace, then exit code 0.")]
pub struct ServeArgs {
    /// A name of `rederive models list`, a folder of safetensors, or a .gguf file
    model: String,
    /// Serve this adapter (a folder in PEFT format) under a name too; may be given more than once
    #[arg(long = "adapter", value_name = "NAME=DIR", value_parser = named)]
    adapters: Vec<(String, PathBuf)>,
    /// Name of the base model for clients [default: the last part of MODEL]
    #[arg(long)]
    name: Option<String>,
    /// Address to listen on; one that others reach needs an API key
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    host: IpAddr,
    /// Port to listen on; 0 takes a free one and prints it
    #[arg(long, default_value_t = 8000)]
    port: u16,
    /// Listen on a Unix socket that only you can open
    #[arg(long, value_name = "PATH", conflicts_with_all = ["host", "port"])]
    unix: Option<PathBuf>,
    /// File with the key that clients must send; the variable REDERIVE_API_KEY does the same
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    #[command(flatten)]
    device: DeviceArgs,
    /// Calls that run at the same time
    #[arg(long, default_value_t = 8)]
    slots: usize,
    /// Most tokens of a call, prompt and answer together [default: 4096, or what the model can hold]
    #[arg(long, value_name = "TOKENS")]
    context: Option<usize>,
    /// Calls that may wait for a slot; more are answered with 429
    #[arg(long, value_name = "CALLS", default_value_t = 256)]
    queue: usize,
    /// Most choices (`n`) of a request
    #[arg(long, value_name = "N", default_value_t = 64)]
    max_choices: u32,
    /// Largest request body
    #[arg(long, value_name = "MIB", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    max_body: u32,
    /// Longest time of a request, waiting included
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u32).range(1..))]
    request_timeout: u32,
    /// Time that running requests get to finish when the server is to stop
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    grace: u32,
    /// Print one line of JSON once requests are answered
    #[arg(long)]
    json: bool,
}

fn named(text: &str) -> std::result::Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, folder)) if !name.is_empty() && !folder.is_empty() => {
            Ok((name.to_owned(), folder.into()))
        }
        _ => Err("an adapter is given as NAME=DIR".to_owned()),
    }
}

/// `rederive serve`
pub fn serve(args: &ServeArgs, terminal: &Terminal) -> Result<u8> {
    let listen = match &args.unix {
        #[cfg(unix)]
        Some(path) => Listen::Unix(path.clone()),
        #[cfg(not(unix))]
        Some(_) => return Err(Error::invalid("this system has no Unix sockets").at("--unix")),
        None => Listen::Tcp(SocketAddr::new(args.host, args.port)),
    };
    let api_key = api_key(args)?;
    // Said before the model is loaded.
    listen.check(api_key.is_some())?;
    let processor = args.device.processor()?;
    let (source, folders) = (args.model.clone(), args.adapters.clone());
    let (model, adapters) =
        until_stopped("load the model", terminal, move || load(&source, processor, folders))?;
    let last = model.origin.name.trim_end_matches('/').rsplit('/').next().map(str::to_owned);
    let options = Options {
        listen,
        name: args.name.clone().or(last).unwrap_or_else(|| "model".to_owned()),
        api_key,
        limits: Limits {
            queue: args.queue,
            choices: args.max_choices,
            body_bytes: (args.max_body as usize) << 20,
            request_time: Duration::from_secs(args.request_timeout.into()),
        },
    };
    let context = args.context.unwrap_or_else(|| CONTEXT.min(model.config.max_positions));
    let sizes = Sizes::new(args.slots, context);
    let make = move || {
        let mut engine = Engine::new(model, sizes)?;
        for (name, adapter) in adapters {
            engine.add_adapter(name, adapter)?;
        }
        Ok(engine)
    };
    let server = Server::start(make, options)?;
    ready(&server, args, context)?;
    while !STOP.load(Relaxed) {
        if server.broken() {
            return Err(Error::refused("the engine broke while it answered")
                .hint("start the server again; the lines above say what happened"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let ended = server.stop(Duration::from_secs(args.grace.into()));
    terminal.say(&format!(
        "stopped: {} calls answered, {} given up by their clients, {} failed, {} cut off",
        ended.counts.completed, ended.counts.cancelled, ended.counts.failed, ended.cut
    ));
    Ok(0)
}

fn load(
    source: &str,
    processor: Processor,
    folders: Vec<(String, PathBuf)>,
) -> Result<(Arc<Model>, Vec<(String, Lora)>)> {
    let model = Model::load_on(&Source::parse(source)?, processor)?;
    model.tokenizer()?;
    if model.template.is_none() {
        line("note: the model has no chat template, so only /v1/completions can answer");
    }
    let adapters = folders
        .into_iter()
        .map(|(name, folder)| Ok((name, model.load_adapter(&folder)?)))
        .collect::<Result<_>>()?;
    Ok((Arc::new(model), adapters))
}

/// The key of the file, else of the environment.
fn api_key(args: &ServeArgs) -> Result<Option<String>> {
    let (key, place) = match &args.api_key_file {
        Some(path) => (fs_err::read_to_string(path)?, path.display().to_string()),
        None => match std::env::var(KEY) {
            Ok(key) => (key, KEY.to_owned()),
            Err(std::env::VarError::NotPresent) => return Ok(None),
            Err(e) => return Err(Error::invalid(e.to_string()).at(KEY)),
        },
    };
    match key.trim() {
        "" => Err(Error::invalid("the API key is empty").at(place).hint("put a long random text there")),
        key => Ok(Some(key.to_owned())),
    }
}

fn ready(server: &Server, args: &ServeArgs, context: usize) -> Result<()> {
    let (models, memory) = (server.models(), server.memory_plan());
    if args.json {
        let body = serde_json::json!({
            "event": "ready", "address": server.listen().to_string(), "models": models, "slots": args.slots,
            "context": context, "queue": args.queue, "memory": memory, "pid": std::process::id(),
        });
        return print(&format!("{body}\n"));
    }
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    print(&format!(
        "serving {} at {}\n{} slots of {context} tokens, {} MiB: weights {}, caches {}, steps {}\n",
        models.join(", "),
        server.listen(),
        args.slots,
        mib(memory.total_bytes()),
        mib(memory.weights_bytes),
        mib(memory.cache_bytes),
        mib(memory.activation_bytes)
    ))
}
