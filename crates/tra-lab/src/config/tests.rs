use super::*;

fn parse(text: &str) -> Result<RunConfig, String> {
    let table = text.parse().unwrap();
    RunConfig::from_table(table, Vec::new(), &[], None).map_err(|e| e.to_string())
}

#[test]
fn settings_without_a_name_are_those_of_the_default() {
    let set: [String; 2] = ["model.attention.horizon=exact".into(), "task.reads=0.2".into()];
    let named = ["model.attention.name=tra".into(), set[0].clone()];
    let config = |set: &[String]| RunConfig::from_table(Table::new(), Vec::new(), set, None);
    assert_eq!(config(&set[..1]).unwrap(), config(&named).unwrap());
    assert_ne!(config(&set[..1]).unwrap(), config(&[]).unwrap());
    assert!(!config(&set[1..]).is_err_and(|e| e.to_string().contains("name")));
    let wrong = config(&["model.attention.horizon=far".into()]).unwrap_err().to_string();
    assert!(wrong.contains("far") && wrong.contains("exact"), "{wrong}");
}

#[test]
fn a_config_comes_back_from_its_own_text() {
    let config = parse(
        "steps = 7\nlength = '1..50'\n[task]\nname = 'copy'\nalphabet = 26\n\
         [model]\nlayers = 1\n[model.attention]\nname = 'rope'\ntheta = 10.0",
    )
    .unwrap();
    let text = toml::to_string(&config).unwrap();
    assert_eq!(parse(&text).unwrap(), config);
    assert_eq!(config.length, Some(Lengths { from: 1, to: 50 }));
    assert_eq!(parse("length = 512").unwrap().length, Some(Lengths { from: 512, to: 512 }));
}

/// Older files have these settings outside `research`. Files and `--set` accept both places,
/// the last one given wins, and new files use `research`.
#[test]
fn settings_of_research_may_stand_where_they_stood() {
    let new = "[model.research]\nsharpness = 0.3\nembedding_dropout = 0.1\nembedding_bound = 1.0\n\
               [model.attention]\nname = 'tra'\n[model.attention.research]\nleak = 1.0";
    let old = "[model]\nsharpness = 0.3\nembedding_dropout = 0.1\nembedding_bound = 1.0\n\
               [model.attention]\nname = 'tra'\nleak = 1.0";
    let config = parse(old).unwrap();
    assert_eq!(config, parse(new).unwrap());
    assert_ne!(config, RunConfig::default());
    let text = toml::to_string(&config).unwrap();
    assert!(text.contains("[model.research]") && text.contains("[model.attention.research]"));
    assert_eq!(parse(&text).unwrap(), config);
    let set = |file: &str, set: &str| {
        RunConfig::from_table(file.parse().unwrap(), vec![], &[set.into()], None).unwrap()
    };
    for file in [old, new] {
        for (old, new, at) in [
            ("model.sharpness=0.5", "model.research.sharpness=0.5", 0.5),
            ("model.attention.leak=0.5", "model.attention.research.leak=0.5", 0.3),
        ] {
            assert_eq!(set(file, old), set(file, new));
            assert_ne!(set(file, old), config);
            assert_eq!(set(file, old).model.decoder.research.sharpness, at);
        }
    }
    let twice = parse("[model]\nsharpness = 0.3\n[model.research]\nsharpness = 0.3");
    assert!(twice.unwrap_err().contains("unknown field `sharpness`"));
    let of_rope = parse("[model.attention]\nname = 'rope'\nleak = 1.0").unwrap_err();
    assert!(of_rope.contains("unknown field `leak`"), "{of_rope}");
}

#[test]
fn sizes_that_are_given_win_over_the_named_one() {
    let config = parse("[model]\nsize = 'tiny'\nlayers = 3\nheads = 2").unwrap();
    let DecoderConfig { layers, width, heads, .. } = config.model.decoder;
    assert_eq!((layers, width, heads), (3, 128, 2));
    let text = toml::to_string(&config).unwrap();
    assert!(text.contains("size = \"tiny\"") && text.contains("layers = 3"), "{text}");
    assert!(!text.contains("width") && !text.contains("vocab"), "{text}");
    assert_eq!(parse(&text).unwrap(), config);
    for key in NOT_IN_FILES {
        let error = parse(&format!("[model]\n{key} = 1")).unwrap_err();
        assert!(error.contains(&format!("unknown field `{key}`")), "{error}");
    }
    let error = parse("[model.attention]\nname = 'rope'\ntheta = 'far'").unwrap_err();
    assert!(error.contains("attention") && error.contains("far"), "{error}");
}

#[test]
fn typos_are_errors_that_name_the_key() {
    for (text, part) in [
        ("stepz = 7", "stepz"),
        ("[task]\nname = 'flipflop'\nalphabt = 3", "alphabt"),
        ("[task]\nname = 'flipflip'", "flipflip"),
        ("[model]\nsize = 'huge'", "huge"),
        ("[model.attention]\nname = 'rope'\ntheta = 1.0\nbeta = 2", "beta"),
        ("steps = 'many'", "many"),
        ("length = '5..x'", "5..x"),
        ("length = '9..5'", "empty range"),
        ("length = 7", "even"),
        ("lr = -1.0", "lr"),
        ("batch = 0", "batch"),
        ("betas = [0.9, 1.5]", "betas"),
        ("version = 9", "version 9"),
        ("[curriculum]\nfrom = 600\nuntil = 0.5", "curriculum.from"),
        ("[curriculum]\nfrom = 512\nuntil = 1.5", "curriculum.until"),
        ("[curriculum]\nfrom = 512\nuntil = 0.5\nshortest = 1", "curriculum.shortest"),
        ("[curriculum]\nfrom = 512\nuntil = 0.5\npower = 0", "curriculum.power"),
        ("[curriculum]\nfrom = 512\nuntil = 0.5\nwiden = 0", "curriculum.widen"),
        ("[curriculum]\nfrom = 512", "until"),
        ("optimizer = 'sgd'", "sgd"),
        ("[model]\nembedding_bound = 0", "embedding_bound must be positive"),
        ("[model]\nembedding_bound = 1e39", "fit an f32, not 1000"),
        ("[eval]\nuntil_perfect = 2", "eval.every"),
        ("[eval]\nsplits = ['far']", "far"),
        ("[model]\nwidth = 10\nheads = 3", "must divide"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.contains(part), "{text:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn flags_and_settings_win_over_the_file() {
    let table: Table =
        "steps = 7\nlr = 1.0\n[model.attention]\nname = 'rope'\ntheta = 3.0".parse().unwrap();
    let flags = vec![("steps", Value::from(9)), ("model.attention.name", Value::from("alibi"))];
    let set = ["lr=0.5".to_string(), "task.name=copy".into(), "task.alphabet=26".into()];
    let config = RunConfig::from_table(table, flags, &set, None).unwrap();
    assert_eq!((config.steps, config.lr), (9, 0.5));
    assert_eq!(
        config.model.decoder.attention.name(),
        "alibi",
        "rope's theta does not get in the way"
    );
    let error = RunConfig::from_table(Table::new(), Vec::new(), &["lr".into()], None).unwrap_err();
    assert!(error.to_string().contains("path=value"));
    let error = RunConfig::from_table(Table::new(), Vec::new(), &["steps=many".into()], None);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("steps") && error.lines().count() == 1, "{error}");
}
fn blamed(file: &str, flags: Vec<Override>, set: &[&str]) -> String {
    let set: Vec<String> = set.iter().map(|s| s.to_string()).collect();
    let path = Some(Path::new("run.toml"));
    let error = RunConfig::from_table(file.parse().unwrap(), flags, &set, path);
    error.unwrap_err().to_string()
}

#[test]
fn what_makes_settings_wrong_is_named() {
    let lr = || vec![("lr", Value::from(-1.0))];
    let splits = vec![("eval.splits", Value::from(vec!["iid", "far"]))];
    let perfect = vec![("eval.until_perfect", Value::from(3))];
    let attention = vec![("model.attention.name", Value::from("rop"))];
    let curriculum = ["curriculum.from=9999", "curriculum.until=0.5", "lr=0.1"];
    for (error, start) in [
        (blamed("steps = 3", vec![], &["lr=0.1", "steps=many"]), "--set steps=many: invalid"),
        (blamed("steps = 3", vec![], &["steps"]), "--set steps: write it as path=value"),
        (blamed("steps = 3", vec![], &["steps.x=1"]), "--set steps.x=1: steps.x: steps is"),
        (blamed("steps = 3", lr(), &["batch=2"]), "--lr -1.0: lr must be positive"),
        (blamed("steps = 3", splits, &[]), "--eval-splits iid,far: flipflop has no split"),
        (blamed("steps = 3", perfect, &[]), "--until-perfect 3: until_perfect needs"),
        (blamed("steps = 3", attention, &[]), "--attention rop: unknown variant"),
        (blamed("length = 7", vec![], &["lr=0.1"]), "run.toml: flipflop has no sequence"),
        (blamed("lr = -1.0", vec![], &["batch=2"]), "run.toml: lr must be"),
        (blamed("stepz = 3", lr(), &[]), "run.toml: unknown field `stepz`"),
        (blamed("steps = 3", vec![], &curriculum), "--set curriculum.from=9999: curriculum"),
    ] {
        assert!(error.starts_with(start) && error.lines().count() == 1, "{start}: {error}");
    }
    // An error that a later setting corrects is not reported.
    let mended = ["length=8".to_string()];
    let file = Some(Path::new("run.toml"));
    let table = "length = 7".parse().unwrap();
    assert!(RunConfig::from_table(table, Vec::new(), &mended, file).is_ok());
}

#[test]
fn only_what_a_run_wrote_is_a_run() {
    let recorded = |text: &str| RunConfig::recorded(text.parse().unwrap(), Path::new("c.toml"));
    let ours = toml::to_string(&RunConfig::default()).unwrap();
    assert_eq!(recorded(&ours).unwrap(), RunConfig::default());
    let error = recorded("version = 1").unwrap_err().to_string();
    assert!(error.starts_with("c.toml: not written by a run: it lacks seed and"), "{error}");
    let error = recorded(&ours.replace("steps = ", "stepz = ")).unwrap_err().to_string();
    assert!(error.contains("stepz"), "{error}");
    let error = recorded(&ours.replace("steps = 100\n", "")).unwrap_err().to_string();
    assert!(error.contains("lacks steps, which"), "{error}");
    // A file of the first version, with lengths that were valid then.
    let old: String = ours
        .lines()
        .filter(|line| {
            !["betas", "same_length", "tied", "embedding_bound", "horizon", "leak"]
                .iter()
                .any(|key| line.starts_with(key))
        })
        .map(|line| format!("{line}\n"))
        .collect();
    assert_eq!(recorded(&old).unwrap(), RunConfig::default());
    let short = recorded(&format!("length = '0..5'\n{ours}")).unwrap();
    assert!(short.validate().unwrap_err().to_string().contains("at least 4"));
}

#[test]
fn every_run_in_the_results_is_one() {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
    let mut folders = vec![results];
    let mut found = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if entry.file_name() == "config.toml" {
                let text = std::fs::read_to_string(&path).unwrap();
                let error = RunConfig::recorded(text.parse().unwrap(), &path).err();
                // Some results used settings that were removed later.
                let error = error.map(|e| e.to_string()).unwrap_or_default();
                assert!(!error.contains("not written by a run"), "{error}");
                found += usize::from(error.is_empty());
            }
        }
    }
    assert!(found > 0, "no run with its settings is kept");
}
