//! The list of tasks. Adding one is one new file beside this and one line below.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::addition::Addition;
use crate::copy::Copy;
use crate::copy_unique::CopyUnique;
use crate::flipflop::FlipFlop;
use crate::induct::Induct;
use crate::instruct::Instruct;
use crate::needle::Needle;
use crate::parity::Parity;
use crate::recall::Recall;
use crate::reverse::Reverse;
use crate::sort::Sort;
use crate::text::Text;
use crate::{Measure, OpenTask, Split, Task, TaskError};

/// One line a task: the name users type and its settings, which are the task itself.
macro_rules! tasks {
    ($($name:literal: $task:ident;)*) => {
        /// Names of all tasks whose samples are drawn. `text` is read from files.
        pub const NAMES: &[&str] = &[$($name),*];

        /// The settings of any task, under its name. [`open`](Self::open) makes it ready to be drawn from.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "name")]
        pub enum TaskSpec {
            $(#[doc = concat!("`", $name, "`")] #[serde(rename = $name)] $task($task),)*
            /// `text`
            #[serde(rename = "text")]
            Text(Text),
        }

        impl TaskSpec {
            /// The task of that name with its default settings.
            pub fn by_name(name: &str) -> Result<Self, TaskError> {
                match name {
                    $($name => Ok(Self::$task($task::default())),)*
                    "text" => Ok(Self::Text(Text::default())),
                    _ => Err(TaskError::UnknownTask(name.into())),
                }
            }

            /// What users type.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$task(_) => $name,)*
                    Self::Text(_) => "text",
                }
            }

            /// What is asked of a model, in one line.
            pub fn about(&self) -> &'static str {
                match self {
                    $(Self::$task(task) => task.about(),)*
                    Self::Text(_) => crate::text::ABOUT,
                }
            }

            /// Number of tokens; that of text depends on its tokenizer.
            pub fn vocab(&self) -> Option<usize> {
                match self {
                    $(Self::$task(task) => Some(task.vocab()),)*
                    Self::Text(_) => None,
                }
            }

            /// What a length counts.
            pub fn unit(&self) -> &'static str {
                match self {
                    $(Self::$task(task) => task.unit(),)*
                    Self::Text(_) => "tokens",
                }
            }

            /// The distributions it offers, `train` first.
            pub fn splits(&self) -> &'static [Split] {
                match self {
                    $(Self::$task(task) => task.splits(),)*
                    Self::Text(_) => crate::text::SPLITS,
                }
            }

            /// Says what is wrong with the settings, if anything is. Files are not looked at.
            pub fn validate(&self) -> Result<(), TaskError> {
                let wrong = |reason| TaskError::Setting { task: self.name(), reason };
                match self {
                    $(Self::$task(task) => task.validate().map_err(wrong),)*
                    Self::Text(text) => text.validate().map_err(wrong),
                }
            }

            /// Opens the task. A text is tokenised if need be; `progress` is told which file or
            /// folder is read, how many of its bytes are read and how many it has.
            pub fn open_with(
                &self,
                progress: &mut dyn FnMut(&Path, u64, u64),
            ) -> Result<OpenTask, TaskError> {
                self.validate()?;
                match self {
                    $(Self::$task(task) => Ok(OpenTask::new(task.clone())),)*
                    Self::Text(text) => text.open(progress).map(OpenTask::new),
                }
            }

            /// Opens the task, or returns `None` where a text would have to be tokenised first.
            pub fn open_prepared(&self) -> Result<Option<OpenTask>, TaskError> {
                match self {
                    Self::Text(text) => Ok(text.open_cached()?.map(OpenTask::new)),
                    _ => self.open().map(Some),
                }
            }
        }
    };
}

impl TaskSpec {
    /// Opens the task. A text is tokenised if need be.
    pub fn open(&self) -> Result<OpenTask, TaskError> {
        self.open_with(&mut |_, _, _| {})
    }

    /// By what a model of it is judged.
    pub fn measure(&self) -> Measure {
        match self {
            Self::Text(_) => Measure::Perplexity,
            _ => Measure::ExactMatch,
        }
    }

    /// The split of that name.
    pub fn split(&self, name: &str) -> Result<&'static Split, TaskError> {
        crate::open::find_split(self.name(), self.splits(), name)
    }
}

tasks! {
    "flipflop": FlipFlop;
    "copy": Copy;
    "copy-unique": CopyUnique;
    "induct": Induct;
    "instruct": Instruct;
    "reverse": Reverse;
    "sort": Sort;
    "parity": Parity;
    "addition": Addition;
    "recall": Recall;
    "needle": Needle;
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::de::value::{Error, MapDeserializer};

    fn read(fields: &[(&'static str, &'static str)]) -> Result<TaskSpec, Error> {
        TaskSpec::deserialize(MapDeserializer::new(fields.iter().copied()))
    }

    #[test]
    fn a_name_is_a_config_and_unknown_settings_are_refused() {
        for name in NAMES {
            assert_eq!(read(&[("name", name)]).unwrap(), TaskSpec::by_name(name).unwrap());
            let text = read(&[("name", name), ("alphabett", "3")]).unwrap_err().to_string();
            assert!(text.contains("alphabett"), "{name}: {text}");
        }
        assert!(read(&[("name", "cpoy")]).is_err());
        let text = TaskSpec::by_name("cpoy").unwrap_err().to_string();
        assert!(text.contains("copy, copy-unique"), "{text}");
    }

    #[test]
    fn bad_settings_are_refused_when_opened() {
        let error = TaskSpec::Copy(Copy { alphabet: 1 }).open().unwrap_err();
        assert!(error.to_string().starts_with("copy: alphabet"), "{error}");
    }
}
