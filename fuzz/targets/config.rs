//! Any text as a configuration.
#![no_main]

use std::path::Path;
use std::time::Duration;

use headroom_gateway::config::Config;
use headroom_ipsec::Engine;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(config) = Config::parse(text, Path::new("fuzz.toml")) else { return };
    // what was parsed can be put in force
    let associations = config.associations.into_iter().map(|association| association.spec);
    Engine::new(associations.collect(), config.policies, None, Duration::ZERO)
        .expect("what was accepted makes an engine");
});
