//! Tokenizer and chat template of a model without its weights: what it takes to count the tokens of
//! a conversation.

use super::load::Source;
use super::{ChatTemplate, Tokenizer, fetch, gguf, registry};
use crate::error::{Error, Result};
use serde::Serialize;

/// The side of a model that deals with text.
pub struct TextSide {
    tokenizer: Tokenizer,
    template: ChatTemplate,
}

impl TextSide {
    /// Reads it. Errors name what is missing.
    pub fn load(source: &Source) -> Result<TextSide> {
        let (tokenizer, template) = match source {
            Source::Named(name) => gguf::text_side(&fetch::cached(registry::get(name)?)?)?,
            Source::Gguf(path) => gguf::text_side(path)?,
            Source::Folder(folder) => {
                let tokenizer = Tokenizer::from_folder(folder)?.ok_or_else(|| {
                    Error::invalid("the model has no tokenizer")
                        .at(folder.display())
                        .hint("put the tokenizer.json of the model there")
                })?;
                (tokenizer, ChatTemplate::from_folder(folder)?)
            }
        };
        let template = template.ok_or_else(|| {
            Error::invalid("the model has no chat template")
                .at(source)
                .hint("put the model's chat_template.jinja beside its tokenizer")
        })?;
        Ok(TextSide { tokenizer, template })
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Token ids of a conversation and the opening of an assistant turn, where the template reads `names` too.
    pub fn prompt<M: Serialize>(
        &self,
        messages: &[M],
        names: &serde_json::Map<String, serde_json::Value>,
    ) -> Result<Vec<u32>> {
        self.tokenizer.encode(&self.template.render_with(messages, true, &[], names)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Message;
    use crate::model::{Model, TinySpec};

    #[test]
    fn it_renders_as_the_whole_model_does() {
        let folder = tempfile::tempdir().unwrap();
        let model = Model::tiny(&TinySpec::default()).unwrap();
        model.save(folder.path()).unwrap();
        let source = Source::Folder(folder.path().to_owned());
        let messages =
            [Message::user("How many figs?"), Message::assistant("ANSWER: 7"), Message::user("And now?")];
        let text = TextSide::load(&source).unwrap();
        assert_eq!(
            text.prompt(&messages, &Default::default()).unwrap(),
            model.render(&messages, true).unwrap()
        );
        fs_err::remove_file(folder.path().join("tokenizer.json")).unwrap();
        let error = TextSide::load(&source).err().unwrap().to_string();
        assert!(error.contains("no tokenizer"), "{error}");
    }

    #[test]
    fn a_gguf_file_gives_it_without_its_weights() {
        let Some(model) = crate::model::testing::smollm2() else { return };
        let path = model.origin.path.clone().unwrap();
        let messages = [Message::user("How many figs?")];
        let text = TextSide::load(&Source::Gguf(path)).unwrap();
        assert_eq!(
            text.prompt(&messages, &Default::default()).unwrap(),
            model.render(&messages, true).unwrap()
        );
    }
}
