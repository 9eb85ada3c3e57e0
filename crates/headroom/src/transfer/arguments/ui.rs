//! The arguments of `headroom ui`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

const UI_HELP: &str = "The page has two panes: this machine and a server. Copies and syncs between them are those of put, get and \
sync, and go on while the page is closed. It also starts and shows runs of the lab, with plans in ./plans \
and results in ./results, and shows and controls the jobs of `headroom fleet`. Runs until Ctrl-C or the page's \
Quit button.

Only this machine reaches the page, and the printed address has a secret: who has it can read and write \
your files.

Examples:
  headroom ui
  headroom ui nas backup.example:4860
  headroom ui user@host
  headroom ui --fleet archive.toml";

/// Show this machine and servers side by side in a browser, and move files between them
#[derive(Debug, Args)]
#[command(after_help = UI_HELP)]
pub(crate) struct Ui {
    /// Servers to show: those that run `headroom serve`, and with USER@ those that ssh reaches. The
    /// page adds others
    #[arg(value_name = "[USER@]HOST[:PORT]")]
    pub(crate) servers: Vec<String>,
    /// Listen at this TCP address, which must be one of this machine alone
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// Show the job of this file, whose queue is at NATS, or of this folder with its state, besides
    /// those in ~/.local/state/headroom/fleet
    #[arg(long = "fleet", value_name = "JOB.toml")]
    pub(crate) fleets: Vec<PathBuf>,
    /// Print the page's address, and start no browser
    #[arg(long)]
    pub(crate) no_open: bool,
    /// Your key file, made if it is missing [default: ~/.config/headroom/identity]
    #[arg(long, value_name = "FILE")]
    pub(crate) identity: Option<PathBuf>,
    /// The ssh command with its options [default: `$HEADROOM_SSH`, else ssh]
    #[arg(long, value_name = "COMMAND")]
    pub(crate) ssh_command: Option<String>,
    /// Print a JSON line with the page's address
    #[arg(long)]
    pub(crate) json: bool,
}
