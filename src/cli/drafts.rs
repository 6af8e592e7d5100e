//! What a verb says of drafted texts that followed an experiment.

use super::progress::Terminal;
use crate::error::Result;
use crate::stages::draft::Texts;

/// Names what was drafted, and a report of somebody's own that is behind. Texts that could not be renewed end no
/// command: what it did stands.
pub(super) fn say(followed: Result<Texts>, terminal: &Terminal) {
    match followed {
        Ok(texts) => {
            for path in &texts.written {
                terminal.say(&format!("drafted {}; `rederive fill` writes its numbers", path.display()));
            }
            if let Some((path, lifecycle)) = &texts.behind {
                let path = path.display();
                terminal.say(&format!(
                    "{path} was edited and stays as it is: its `lifecycle` is now to say `{lifecycle}`"
                ));
            }
        }
        Err(e) => terminal.say(&format!("warning: the drafted texts were not renewed: {e}")),
    }
}
