//! Checks of the settings before a run starts.
//!
//! They run in this order: is every setting valid, are there sequences to train on, can every split
//! be evaluated, and has the machine enough memory. A run made elsewhere only has to pass the first
//! one, [`check_values`](RunConfig::check_values).

use tra_tasks::{LAST_INDEX, OpenTask, TaskSpec};

use crate::budget;
use crate::config::{Lengths, RunConfig, VERSION};
use crate::error::LabError;

impl RunConfig {
    /// Checks the settings and whether this machine has the memory for the run.
    ///
    /// Checks that depend on a text are left to [`check_runnable`](Self::check_runnable).
    pub fn validate(&self) -> Result<(), LabError> {
        self.check_settings()?;
        self.check_own_memory()
    }

    pub(crate) fn check_settings(&self) -> Result<(), LabError> {
        self.check_values()?;
        match self.task {
            // Text is checked when its files are opened.
            TaskSpec::Text(_) => Ok(()),
            _ => self.check_lengths(&self.task.open()?),
        }
    }

    /// Checks the memory of a run, except for text, whose vocabulary is not known yet.
    pub(crate) fn check_own_memory(&self) -> Result<(), LabError> {
        match self.task {
            TaskSpec::Text(_) => Ok(()),
            _ => self.check_memory(&self.task.open()?),
        }
    }

    /// Checks whether a run with these settings can start and finish, without drawing or computing
    /// anything.
    ///
    /// Returns an error if the task has no sequences of the training lengths, if a split cannot be
    /// evaluated, or if this machine has too little memory.
    pub fn check_runnable(&self, task: &OpenTask) -> Result<(), LabError> {
        self.check_lengths(task)?;
        self.check_splits(task)?;
        self.check_memory(task)
    }

    /// Checks whether this machine has at least the memory that training needs.
    pub fn check_memory(&self, task: &OpenTask) -> Result<(), LabError> {
        match computes_here() {
            true => budget::training(self, task)?.check(),
            false => budget::data(self, task).check(),
        }
    }

    /// Checks every setting by itself.
    pub(crate) fn check_values(&self) -> Result<(), LabError> {
        let wrong = |text: String| Err(LabError::Setting(text));
        if self.version != VERSION {
            return wrong(format!(
                "this run has version {}, but this program reads version {VERSION}; use the \
                 version of tra that wrote it",
                self.version
            ));
        }
        for (name, value) in
            [("batch", self.batch), ("accumulate", self.accumulate), ("keep", self.keep)]
        {
            if value == 0 {
                return wrong(format!("{name} must be at least 1"));
            }
        }
        if !(self.lr > 0.0 && self.lr.is_finite()) {
            return wrong(format!("lr must be positive, not {}", self.lr));
        }
        if !(0.0..=1.0).contains(&self.warmup) {
            return wrong(format!(
                "warmup must be a fraction of the steps from 0 to 1, not {}",
                self.warmup
            ));
        }
        for (name, value) in [("weight_decay", self.weight_decay), ("clip", self.clip)] {
            if !(value >= 0.0 && value.is_finite()) {
                return wrong(format!("{name} must be 0 or more, not {value}"));
            }
        }
        if self.betas.iter().any(|beta| !(0.0..1.0).contains(beta)) {
            return wrong(format!("betas must be at least 0 and below 1, not {:?}", self.betas));
        }
        if let Some(curriculum) = self.curriculum {
            curriculum.validate(self.train_lengths()).map_err(LabError::Setting)?;
        }
        if self.eval.until_perfect > 0 && self.eval.every == 0 {
            return wrong("until_perfect needs evaluations during training; set eval.every".into());
        }
        if self.eval.sequences == 0 {
            return wrong("eval.sequences must be at least 1".into());
        }
        self.task.validate()?;
        for name in self.eval_splits() {
            self.task.split(&name)?;
        }
        let is_text = matches!(self.task, TaskSpec::Text(_));
        if is_text && self.eval.until_perfect > 0 {
            return wrong(
                "until_perfect does not work for text, which is never fully right; set it to 0"
                    .into(),
            );
        }
        self.decoder(if is_text { usize::MAX } else { self.task.vocab().unwrap_or(1) })?;
        self.check_numbers()
    }

    /// Checks that the indices of all sequences of the run fit below `LAST_INDEX`.
    fn check_numbers(&self) -> Result<(), LabError> {
        let widen = self.curriculum.map_or(1, |curriculum| curriculum.widen);
        // In f64, where no product overflows.
        let factors = [self.steps.max(1), self.batch as u64, self.accumulate as u64, widen as u64];
        let trained: f64 = factors.into_iter().map(|n| n as f64).product();
        for (what, count) in [
            ("steps x batch x accumulate", trained),
            ("eval.sequences", self.eval.sequences as f64),
        ] {
            if count >= LAST_INDEX as f64 {
                return Err(LabError::Setting(format!(
                    "{what} must be below {:.1e}, the number of sequences of a task, but is \
                     {count:.1e}",
                    LAST_INDEX as f64
                )));
            }
        }
        Ok(())
    }

    /// Checks whether the task has sequences of the training lengths.
    pub fn check_lengths(&self, task: &OpenTask) -> Result<(), LabError> {
        let Lengths { from, to } = self.train_lengths();
        task.check_lengths((from, to))?;
        // A curriculum may start with a single length.
        let Lengths { from, to } = self.lengths_at(0);
        Ok(task.check_lengths((from, to))?)
    }

    /// Checks whether training and every split have sequences, whether the model has enough
    /// positions for them, and whether this machine has the memory to evaluate them.
    pub fn check_splits(&self, task: &OpenTask) -> Result<(), LabError> {
        let decoder = self.decoder(task.vocab())?;
        let splits = self.eval_splits();
        let one = |split: &str, lengths: Lengths| -> Result<(), LabError> {
            task.check_lengths((lengths.from, lengths.to))?;
            let [_, most] = task.token_bounds(lengths.to);
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            decoder.check_length(most).map_err(tra_nn::Error::from)?;
            match split {
                "train" => Ok(()),
                _ if !computes_here() => Ok(()),
                _ => budget::test(&decoder, task, lengths, self.eval.sequences).check(),
            }
        };
        one("train", self.train_lengths()).map_err(|e| {
            LabError::Setting(format!("training at length {}: {e}", self.train_lengths()))
        })?;
        let mut fine = Vec::new();
        let mut longest: Option<(usize, &String, LabError)> = None;
        for split in &splits {
            let lengths = self.split_lengths(split)?;
            match one(split, lengths) {
                Ok(()) => fine.push(split.as_str()),
                // A change that fixes the longest split fixes the others too.
                Err(error) if longest.as_ref().is_none_or(|(to, ..)| *to < lengths.to) => {
                    longest = Some((lengths.to, split, error));
                }
                Err(_) => {}
            }
        }
        let Some((_, split, error)) = longest else { return Ok(()) };
        let way_out = match fine.is_empty() {
            true => "test other splits with --eval-splits".into(),
            false => format!("test only --eval-splits {}", fine.join(",")),
        };
        Err(LabError::Split { split: split.clone(), cause: Box::new(error), way_out })
    }
}

/// Returns whether models are certain to be in this machine's memory. On a GPU they need not fit
/// here, but the data must.
fn computes_here() -> bool {
    tra_nn::device::names() == ["flex"]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(set: &[&str]) -> RunConfig {
        let set: Vec<String> = set.iter().map(|s| s.to_string()).collect();
        RunConfig::from_table(toml::Table::new(), Vec::new(), &set, None).unwrap()
    }

    fn splits(set: &[&str]) -> Result<(), String> {
        let config = config(set);
        config.check_splits(&config.task.open().unwrap()).map_err(|e| e.to_string())
    }

    #[test]
    fn a_split_that_cannot_be_tested_is_named_with_the_way_out() {
        let unique = ["task.name=copy-unique", "task.alphabet=26", "length='1..26'"];
        let error = splits(&unique).unwrap_err();
        let start = "cannot test split 201-300: copy-unique has no sequence of length 300, where";
        assert!(error.starts_with(start), "{error}");
        let end = "set alphabet to 300 or more; or test only --eval-splits iid";
        assert!(error.ends_with(end) && error.lines().count() == 1, "{error}");
        assert_eq!(splits(&[&unique[..], &["eval.splits=['iid']"]].concat()), Ok(()));
        assert_eq!(splits(&["task.name=copy-unique"]), Ok(()));

        let learned = ["task.name=copy", "model.attention.name=learned"];
        let error = splits(&[&learned[..], &["model.attention.count=203"]].concat()).unwrap_err();
        assert!(error.contains("split 1000") && error.contains("2003 tokens"), "{error}");
        assert!(error.ends_with("--eval-splits iid,51-100"), "{error}");
        let error = splits(&[&learned[..], &["model.attention.count=102"]].concat()).unwrap_err();
        assert!(error.starts_with("training at length 1..50: "), "{error}");

        // Drawing one sequence needs little memory, but so many test results do not fit.
        let error = splits(&["eval.sequences=99999999999999999"]).unwrap_err();
        assert!(error.contains("memory") && error.contains("fewer sequences"), "{error}");
    }

    #[test]
    fn every_task_can_be_tested_as_it_comes() {
        for task in TaskSpec::all().filter(|task| task.vocab().is_some()) {
            let name = format!("task.name={}", task.name());
            // The longest instructions have more different symbols than the default alphabet.
            assert_eq!(splits(&[&name]), Ok(()));
        }
    }

    #[test]
    fn sequences_have_numbers_and_these_have_an_end() {
        for set in [
            vec!["steps=9223372036854775807"],
            vec!["batch=9223372036854775807", "accumulate=9223372036854775807"],
            vec!["steps=0", "batch=9223372036854775807"],
            vec!["eval.sequences=9223372036854775807"],
        ] {
            let set: Vec<String> = set.iter().map(|s| s.to_string()).collect();
            let error = RunConfig::from_table(toml::Table::new(), Vec::new(), &set, None);
            let error = error.unwrap_err().to_string();
            assert!(error.contains("must be below 2.9e17"), "{error}");
        }
    }

    /// A run from a larger machine can be opened here, but not started.
    #[test]
    fn memory_is_asked_for_where_a_run_is_made() {
        let config = config(&["batch=999999999999"]);
        let error = config.validate().unwrap_err();
        assert!(matches!(error, LabError::Memory { .. }), "{error}");
        let task = config.task.open().unwrap();
        assert!(config.check_runnable(&task).is_err());
        let table = toml::Table::try_from(&config).unwrap();
        assert_eq!(RunConfig::recorded(table, std::path::Path::new("x")).unwrap(), config);
    }

    #[test]
    fn a_curriculum_begins_at_a_length_there_is() {
        let set = ["length='5..51'", "curriculum.from=5", "curriculum.until=0.5"];
        let set = set.map(String::from);
        let error = RunConfig::from_table(toml::Table::new(), Vec::new(), &set, None);
        assert!(error.unwrap_err().to_string().contains("length 5"));
    }
}
