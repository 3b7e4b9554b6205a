use super::*;

fn sound(page: &str) {
    assert!(!page.contains("NaN") && !page.contains("inf"), "a number is not finite");
    for tag in ["svg", "g", "figure", "details", "table", "section", "ul", "li", "text", "p"] {
        let opened =
            page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
    }
}

#[test]
fn the_page_stands_alone_and_names_every_mechanism() {
    let page = html(&fixture::report());
    sound(&page);
    assert!(page.contains("<b>tra</b>") && page.contains("<b>rope</b>"));
    assert_eq!(page.matches("http").count(), 1);
    assert!(page.contains("https://arxiv.org/abs/2503.23174"));
    assert!(!page.contains("<script") && !page.contains("url(") && !page.contains("@import"));
}

#[test]
fn text_from_outside_is_escaped() {
    let mut report = fixture::report();
    let nasty = "<x onload=\"y\">&";
    report.title = nasty.into();
    report.version = nasty.into();
    report.commands.push(nasty.into());
    report.left_out.push(nasty.into());
    for run in &mut report.runs {
        run.name = nasty.into();
        run.attention = nasty.into();
        run.task = nasty.into();
        run.unit = nasty.into();
        run.settings = nasty.into();
        run.results[0].split = nasty.into();
        run.evaluations[0].results[0].split = nasty.into();
    }
    let page = html(&report);
    sound(&page);
    assert!(!page.contains("<x") && !page.contains("onload=\"y"));
    assert!(page.contains("&lt;x onload=&quot;y&quot;&gt;&amp;"));
}

#[test]
fn what_is_left_out_stands_on_the_page() {
    assert!(!html(&fixture::report()).contains("Missing from"));
    let left_out = vec!["the run x: damaged".into()];
    let page = html(&Report { left_out, ..fixture::report() });
    sound(&page);
    assert!(page.contains("Missing from this page") && page.contains("the run x: damaged"));
}

#[test]
fn missing_and_odd_data_break_nothing() {
    let empty = Report { runs: Vec::new(), ..fixture::report() };
    let page = html(&empty);
    sound(&page);
    assert!(page.contains("There are no runs") && !page.contains("id=\"training\""));

    let change = |change: fn(&mut Run)| {
        let mut report = fixture::report();
        report.runs.iter_mut().for_each(change);
        let page = html(&report);
        sound(&page);
        page
    };
    assert!(change(|run| run.results.clear()).contains("No evaluation of the trained models"));
    assert!(change(|run| run.steps.clear()).contains("No training steps"));
    change(|run| run.steps.truncate(1));
    change(|run| run.results.truncate(1));
    change(|run| run.train_length = (0, 0));
    change(|run| run.seed = 0);
    change(|run| run.picture = Some(fixture::picture(1)));
    change(|run| run.steps.iter_mut().for_each(|step| step.loss = f64::NAN));
    change(|run| run.steps.iter_mut().for_each(|step| step.loss = 0.0));
    change(|run| run.evaluations[0].step = 0);
    let page = change(|run| run.steps[3].loss = f64::NAN);
    assert!(page.contains("Omitted: 4 steps"));
    change(|run| run.steps[3].loss = f64::INFINITY);
    change(|run| {
        run.results[0].exact_match = f64::NAN;
        run.results[0].token_error = f64::NAN;
        run.results[0].exact_match_interval = [f64::NAN; 2];
        run.results[1].length = 0;
    });
}

#[test]
fn pages_of_text_are_sound() {
    let page = html(&fixture::text());
    sound(&page);
    assert_eq!(page.matches("http").count(), 1);
    for (id, shown) in [
        ("accuracy", false),
        ("splits", false),
        ("losses", true),
        ("perplexity", true),
        ("training", true),
        ("settings", true),
    ] {
        assert_eq!(page.contains(&format!("<section id=\"{id}\">")), shown, "{id}");
        assert_eq!(page.contains(&format!("href=\"#{id}\"")), shown, "{id}");
    }
    assert!(!page.contains("Exact match") && !page.contains("every answer right"));

    let page = html(&fixture::report());
    assert!(page.contains("id=\"accuracy\"") && page.contains("id=\"splits\""));
    assert!(!page.contains("id=\"losses\"") && !page.contains("id=\"perplexity\""));
}

#[test]
fn missing_and_odd_data_of_text_break_nothing() {
    let change = |change: fn(&mut Run)| {
        let mut report = fixture::text();
        report.runs.iter_mut().for_each(change);
        let page = html(&report);
        sound(&page);
        page
    };
    let each = |run: &mut Run, change: fn(&mut crate::records::PerplexityResult)| {
        run.perplexity.iter_mut().flat_map(|read| &mut read.results).for_each(change);
    };
    let nasty = change(|run| run.perplexity.as_mut().unwrap().text = "<x onload=\"y\">&".into());
    assert!(!nasty.contains("<x") && nasty.contains("&lt;x onload=&quot;y&quot;&gt;&amp;"));
    assert!(!change(|run| run.perplexity = None).contains("id=\"perplexity\""));
    assert!(!change(|run| run.results.clear()).contains("id=\"losses\""));
    change(|run| run.train_length = (0, 0));
    change(|run| run.train_length = (1, 100_000));
    change(|run| run.train_length = (64, 64 << run.seed));
    change(|run| run.seed = 0);
    change(|run| run.steps.iter_mut().for_each(|step| step.loss = f64::NAN));
    change(|run| run.perplexity.as_mut().unwrap().results.truncate(1));
    for odd in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e300, f64::MAX] {
        let mut report = fixture::text();
        for run in &mut report.runs[..3] {
            for result in &mut run.perplexity.as_mut().unwrap().results {
                (result.perplexity, result.loss, result.bits_per_byte) = (odd, odd, odd);
                result.perplexity_interval = [odd; 2];
                result.by_position.iter_mut().for_each(|bin| bin.loss = odd);
            }
            run.results[0].loss = odd;
            run.results[0].loss_interval = [f64::NAN, odd];
            run.evaluations[0].results[0].loss = odd;
        }
        sound(&html(&report));
    }
    for run in 0..2 {
        let mut report = fixture::text();
        each(&mut report.runs[run], |result| result.window = 0);
        each(&mut report.runs[run], |result| result.by_position.clear());
        sound(&html(&report));
    }
}

#[test]
fn text_and_other_tasks_share_a_page() {
    let mut report = fixture::report();
    report.runs.extend(fixture::text().runs);
    let page = html(&report);
    sound(&page);
    assert_eq!(page.matches("<h3>text</h3>").count(), 3);
    assert_eq!(page.matches("<h3>flip-flop</h3>").count(), 3);
}

#[test]
fn pictures_of_the_wrong_size_are_left_out() {
    let mut report = fixture::report();
    if let Some(picture) = &mut report.runs[1].picture {
        picture.layers[0][0].weights.pop();
    }
    report.runs[0].picture = Some(Picture { tokens: Vec::new(), layers: Vec::new() });
    let page = html(&report);
    sound(&page);
    assert!(page.contains("1 head left out"));
}

#[test]
fn the_page_stays_small() {
    let mut report = fixture::report();
    report.runs.truncate(1);
    for length in [64, 300] {
        report.runs[0].picture = Some(fixture::picture(length));
        let page = html(&report);
        assert!(page.len() < 2_000_000, "{} bytes at length {length}", page.len());
    }
}

#[test]
fn tasks_stand_apart() {
    let mut report = fixture::report();
    report.runs[0].task = "copy".into();
    let page = html(&report);
    sound(&page);
    assert_eq!(page.matches("<h3>copy</h3>").count(), 3);
    assert_eq!(page.matches("<table>").count(), 2);
}
