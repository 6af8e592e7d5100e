//! Attacks on the trained adapter and its merge: weights, configuration and the receipt that signs them.

use super::adapter::{CONFIGURATION, adapter_config};
use super::attacks::{caught, found, run};
use super::workspace::Workspace;
use serde_json::{Value, json};

const ADAPTER: &str = "data/demo/adapters/1/adapter_model.safetensors";

#[test]
fn the_merge_receipt_follows_from_adapter_and_plan() {
    let merged = |words: &str, change: &dyn Fn(&mut Value)| {
        let workspace = Workspace::honest();
        workspace.edit_receipt("merge", change);
        let report = run(&workspace);
        caught(&report, "merge", "receipts/merge.json", None);
        found(&report, "merge", words);
    };
    merged("`delta_norm` is 10.1, the adapter gives 10", &|r| r["delta_norm"] = json!(10.1));
    merged("`delta_norm` is null", &|r| r["delta_norm"] = json!(null));
    merged("`deltas` is 2, the adapter has 1", &|r| (r["deltas"], r["matched"]) = (json!(2), json!(2)));
    merged("0 of 1 deltas", &|r| r["matched"] = json!(0));
    merged("are to be counts", &|r| drop(r.as_object_mut().unwrap().remove("matched")));
    merged("`canaries` is 8, the plan's training families give 2", &|r| r["canaries"] = json!(8));
    merged("`passed` is true, the canaries that changed give false", &|r| r["canaries_changed"] = json!(0));
    merged("`passed` is false", &|r| r["passed"] = json!(false));
    merged("a count of at most 2", &|r| r["canaries_changed"] = json!(3));
    for share in [json!(-0.1), json!(2.5), json!(null), json!("all")] {
        merged("`kept_share` is", &|r| r["kept_share"] = share.clone());
    }
    merged("`largest_logit_difference` is -1", &|r| r["largest_logit_difference"] = json!(-1.0));
    // In f32 nothing is lost; where the weights say that they are, logits agree.
    merged("`largest_logit_difference` is 0.5", &|r| {
        r["largest_logit_difference"] = json!(0.5);
        r["folder"] = json!("adapters/1");
    });
    merged("`kept_share` is 0.4", &|r| (r["kept_share"], r["folder"]) = (json!(0.4), json!("adapters/1")));
    merged("`model_sha256` is", &|r| r["model_sha256"] = json!("0".repeat(64)));
    merged("nothing was merged", &|r| r["merged_sha256"] = r["model_sha256"].clone());
    merged("`folder` is \"merged/2\"", &|r| r["folder"] = json!("merged/2"));
}

/// A file of safetensors with this header and no data.
fn header(text: &str) -> Vec<u8> {
    [(text.len() as u64).to_le_bytes().as_slice(), text.as_bytes()].concat()
}

#[test]
fn an_adapter_that_cannot_be_read_is_named_and_no_panic() {
    // Of 2^40 rows and no columns; of no rows; one half alone; a rank beyond all plans.
    let pair = |a: &str, b: &str| {
        let tensor = |half: &str, shape: &str| {
            format!("\"q.lora_{half}.weight\":{{\"dtype\":\"F32\",\"shape\":{shape},\"data_offsets\":[0,0]}}")
        };
        header(&format!("{{{},{}}}", tensor("A", a), tensor("B", b)))
    };
    let hostile = [
        Vec::new(),
        b"no tensors".to_vec(),
        header("{\"a\":{}}"),
        pair("[1099511627776,0]", "[0,1099511627776]"),
        pair("[0,3]", "[4,1]"),
        pair("[2048,0]", "[0,2048]"),
        pair("[0]", "[0]"),
    ];
    for bytes in hostile {
        let workspace = Workspace::honest();
        fs_err::write(workspace.root().join(ADAPTER), &bytes).unwrap();
        caught(&run(&workspace), "unreadable_file", ADAPTER, None);
    }
}

#[test]
fn what_stands_in_the_place_of_weights_and_is_no_file_is_named() {
    for file in [ADAPTER, "data/demo/merged/1/model.safetensors", "data/demo/adapters/1/adapter_config.json"]
    {
        let workspace = Workspace::honest();
        let path = workspace.root().join(file);
        fs_err::remove_file(&path).unwrap();
        // Weights may be kept elsewhere.
        assert!(run(&workspace).passed(), "{file}");
        fs_err::create_dir(&path).unwrap();
        caught(&run(&workspace), "unreadable_file", file, None);
    }
}

#[test]
fn every_field_of_the_configuration_that_says_what_the_matrices_do_is_the_trainings() {
    let configured = |words: &str, change: &dyn Fn(&mut Value)| {
        let workspace = Workspace::honest();
        let mut config = adapter_config();
        change(&mut config);
        workspace.text(&format!("data/demo/{CONFIGURATION}"), &config.to_string());
        let report = run(&workspace);
        caught(&report, "training", CONFIGURATION, None);
        found(&report, "training", words);
    };
    configured("`lora_alpha` is 3200.0", &|c| c["lora_alpha"] = json!(3200.0));
    configured("`r` is 8", &|c| c["r"] = json!(8));
    configured("`use_rslora` is true", &|c| c["use_rslora"] = json!(true));
    configured("`use_dora` is missing", &|c| drop(c.as_object_mut().unwrap().remove("use_dora")));
    configured("`target_modules` is [\"k_proj\"]", &|c| c["target_modules"] = json!(["k_proj"]));
    configured("`alpha_pattern` is", &|c| c["alpha_pattern"] = json!({"q_proj": 99.0}));
    configured("`layers_to_transform` is [1]", &|c| c["layers_to_transform"] = json!([1]));
    configured("`modules_to_save` is", &|c| c["modules_to_save"] = json!(["lm_head"]));
    // Matrices of another rank than the plan's.
    let workspace = Workspace::honest();
    workspace.replace(
        "data/demo/experiment.toml",
        "[decision]",
        "[training]\nrank = 8\nalpha = 16.0\n[decision]",
    );
    found(&run(&workspace), "training", "has rank 16, the plan says 8");
}
