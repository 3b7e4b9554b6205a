//! The list of tasks. Adding one is one new file beside this and one line below.

use std::path::Path;
use std::str::FromStr;

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
#[cfg(feature = "text")]
use crate::text::Text;
use crate::{OpenTask, Split, Task, TaskError, TaskInfo};

/// Writes [`TaskSpec`] from one line per task: the name users type, and the type of its settings.
macro_rules! tasks {
    ($($(#[$only:meta])* $name:literal: $task:ident;)*) => {
        /// The settings of any task, under its name. [`open`](Self::open) makes it ready to be
        /// drawn from.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "name")]
        pub enum TaskSpec {
            $($(#[$only])* #[doc = concat!("`", $name, "`")] #[serde(rename = $name)] $task($task),)*
        }

        impl TaskSpec {
            /// Returns every task with its default settings.
            pub fn all() -> impl Iterator<Item = Self> {
                [$($(#[$only])* Self::$task($task::default()),)*].into_iter()
            }

            fn settings(&self) -> &dyn Settings {
                match self {
                    $($(#[$only])* Self::$task(task) => task,)*
                }
            }
        }
    };
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
    #[cfg(feature = "text")]
    "text": Text;
}

/// Is told which file or folder is read, how many of its bytes are read and how many it has.
pub(crate) type Progress<'a> = dyn FnMut(&Path, u64, u64) + 'a;

/// What can be done with the settings of any task.
pub(crate) trait Settings {
    fn info(&self) -> &'static TaskInfo;
    fn vocab(&self) -> Option<usize>;
    fn validate(&self) -> Result<(), String>;
    fn open(&self, progress: &mut Progress<'_>) -> Result<OpenTask, TaskError>;
    fn open_prepared(&self) -> Result<Option<OpenTask>, TaskError>;
}

impl<T: Task> Settings for T {
    fn info(&self) -> &'static TaskInfo {
        const { &T::INFO }
    }

    fn vocab(&self) -> Option<usize> {
        Some(self.symbols().end() as usize)
    }

    fn validate(&self) -> Result<(), String> {
        Task::validate(self)
    }

    fn open(&self, _: &mut Progress<'_>) -> Result<OpenTask, TaskError> {
        Ok(OpenTask::new(self.clone()))
    }

    fn open_prepared(&self) -> Result<Option<OpenTask>, TaskError> {
        Ok(Some(OpenTask::new(self.clone())))
    }
}

impl TaskSpec {
    /// Returns what is the same for all settings of the task.
    pub fn info(&self) -> &'static TaskInfo {
        self.settings().info()
    }

    /// Returns the name that users type.
    pub fn name(&self) -> &'static str {
        self.info().name
    }

    /// Returns the distributions that the task offers, `train` first.
    pub fn splits(&self) -> &'static [Split] {
        self.info().splits
    }

    /// Returns the split of that name.
    pub fn split(&self, name: &str) -> Result<&'static Split, TaskError> {
        self.info().split(name)
    }

    /// Returns the number of tokens, unless it is known only when the task is open, as for text.
    pub fn vocab(&self) -> Option<usize> {
        self.settings().vocab()
    }

    /// Returns what is wrong with the settings, if anything is. Files are not looked at.
    pub fn validate(&self) -> Result<(), TaskError> {
        let wrong = |reason| TaskError::Setting { task: self.name(), reason };
        self.settings().validate().map_err(wrong)
    }

    /// Opens the task. A text is tokenised if need be.
    pub fn open(&self) -> Result<OpenTask, TaskError> {
        self.open_with(&mut |_, _, _| {})
    }

    /// Opens the task as [`open`](Self::open) does. While a text is tokenised, `progress` is told
    /// which file or folder is read, how many of its bytes are read and how many it has.
    pub fn open_with(
        &self,
        progress: &mut dyn FnMut(&Path, u64, u64),
    ) -> Result<OpenTask, TaskError> {
        self.validate()?;
        self.settings().open(progress)
    }

    /// Opens the task, or returns `None` if a text would have to be tokenised first.
    pub fn open_prepared(&self) -> Result<Option<OpenTask>, TaskError> {
        self.validate()?;
        self.settings().open_prepared()
    }
}

impl FromStr for TaskSpec {
    type Err = TaskError;

    /// Returns the task of that name with its default settings.
    fn from_str(name: &str) -> Result<Self, TaskError> {
        Self::all()
            .find(|spec| spec.name() == name)
            .ok_or_else(|| TaskError::UnknownTask(name.into()))
    }
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
        for spec in TaskSpec::all() {
            let name = spec.name();
            assert_eq!(name.parse(), Ok(spec.clone()));
            assert_eq!(read(&[("name", name)]).unwrap(), spec);
            let text = read(&[("name", name), ("alphabett", "3")]).unwrap_err().to_string();
            assert!(text.contains("alphabett"), "{name}: {text}");
        }
        assert!(read(&[("name", "cpoy")]).is_err());
        let text = "cpoy".parse::<TaskSpec>().unwrap_err().to_string();
        assert!(text.contains("copy, copy-unique"), "{text}");
    }

    #[test]
    fn bad_settings_are_refused_when_opened() {
        let error = TaskSpec::Copy(Copy { alphabet: 1 }).open().unwrap_err();
        assert!(error.to_string().starts_with("copy: alphabet"), "{error}");
    }
}
