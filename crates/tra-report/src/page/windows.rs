//! Perplexity at several windows: the texts, and how they were cut into windows.

use super::Run;
use super::scores::{Score, Scores};
use super::series::{Series, Task};
use crate::records::{Perplexity, PerplexityResult, Protocol};

/// A text as split by one tokenizer. Perplexities of different readings are not comparable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading<'a> {
    pub text: &'a str,
    pub tokens: u64,
    pub bytes: u64,
}

/// One way to cut a text into windows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cut {
    pub protocol: Protocol,
    pub window: usize,
    pub stride: usize,
}

/// Returns the distinct readings with results, in order of appearance.
pub fn readings<'a>(task: &Task<'a>) -> Vec<Reading<'a>> {
    let mut readings = Vec::new();
    for read in task.runs().filter_map(|run| run.perplexity.as_ref()) {
        let reading = Reading::of(read);
        if !read.results.is_empty() && !readings.contains(&reading) {
            readings.push(reading);
        }
    }
    readings
}

impl<'a> Reading<'a> {
    fn of(read: &'a Perplexity) -> Self {
        Self { text: &read.text, tokens: read.tokens, bytes: read.bytes }
    }

    /// Returns the results of `run` on this reading; empty if it has none.
    fn results<'r>(&self, run: &'r Run) -> &'r [PerplexityResult] {
        match &run.perplexity {
            Some(read) if Reading::of(read) == *self => &read.results,
            _ => &[],
        }
    }

    /// Returns how the text was cut: chunks first, then ascending by window and stride.
    pub fn cuts(&self, task: &Task) -> Vec<Cut> {
        let mut cuts: Vec<Cut> = Vec::new();
        for cut in task.runs().flat_map(|run| self.results(run)).map(Cut::of) {
            if !cuts.contains(&cut) {
                cuts.push(cut);
            }
        }
        cuts.sort_by_key(|cut| (cut.protocol == Protocol::Sliding, cut.window, cut.stride));
        cuts
    }

    /// Returns the results at `cut`, each with its run.
    pub fn at<'r>(&self, series: &Series<'r>, cut: Cut) -> Vec<(&'r Run, &'r PerplexityResult)> {
        let find = |&run: &&'r Run| {
            let found = self.results(run).iter().rfind(|&result| Cut::of(result) == cut);
            found.map(|result| (run, result))
        };
        series.runs.iter().filter_map(find).collect()
    }

    pub fn scores(&self, series: &Series, cut: Cut) -> Scores {
        let results = self.at(series, cut);
        Scores(results.into_iter().map(|(run, result)| Score::of_window(run, result)).collect())
    }
}

impl Cut {
    fn of(result: &PerplexityResult) -> Self {
        Self { protocol: result.protocol, window: result.window, stride: result.stride }
    }
}

/// Keeps one cut per window, the one with the smallest stride, because a line has one value per
/// window.
pub fn one_a_window(cuts: &[Cut]) -> Vec<Cut> {
    let mut kept = cuts.to_vec();
    kept.dedup_by_key(|cut| (cut.protocol, cut.window));
    kept
}

/// Returns the distinct training windows, ascending. For a range of lengths, that is the longest.
pub fn trained(task: &Task) -> Vec<usize> {
    let mut trained: Vec<usize> = task.runs().map(|run| run.train_length.1.max(1)).collect();
    trained.sort_unstable();
    trained.dedup();
    trained
}

#[cfg(test)]
mod tests {
    use super::super::{fixture, series};
    use super::*;

    #[test]
    fn other_texts_and_other_tokens_are_other_readings() {
        let mut report = fixture::text();
        let count = |report: &super::super::Report| {
            let tasks = series::tasks(&report.runs);
            readings(&tasks[0]).len()
        };
        assert_eq!(count(&report), 1);
        report.runs[0].perplexity.as_mut().unwrap().tokens -= 1;
        assert_eq!(count(&report), 2);
        report.runs[1].perplexity.as_mut().unwrap().text = "other".into();
        assert_eq!(count(&report), 3);
        report.runs[1].perplexity.as_mut().unwrap().results.clear();
        assert_eq!(count(&report), 2);
    }

    #[test]
    fn chunks_come_first_and_a_plot_takes_the_smallest_stride() {
        let mut report = fixture::text();
        let results = &mut report.runs[0].perplexity.as_mut().unwrap().results;
        let sliding = results.iter().rfind(|r| r.protocol == Protocol::Sliding).unwrap().clone();
        results.insert(0, PerplexityResult { stride: sliding.stride / 2, ..sliding });
        let tasks = series::tasks(&report.runs);
        let cuts = readings(&tasks[0])[0].cuts(&tasks[0]);
        let names: Vec<_> = cuts.iter().map(|c| (c.protocol.name(), c.window, c.stride)).collect();
        let chunks = [("chunk", 64, 64), ("chunk", 128, 128), ("chunk", 512, 512)];
        let sliding = [("sliding", 128, 64), ("sliding", 512, 128), ("sliding", 512, 256)];
        assert_eq!(names, [chunks, sliding].concat());
        let kept: Vec<_> = one_a_window(&cuts).iter().map(|c| (c.window, c.stride)).collect();
        assert_eq!(kept, [(64, 64), (128, 128), (512, 512), (128, 64), (512, 128)]);
    }
}
