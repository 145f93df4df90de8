//! The command line, which is nginx's: letters that may be joined (`-tq`), values that may be glued
//! on (`-p/path`).
//!
//! Unlike nginx, `--wait` is known, for `-s reload`, and `--daemon-child`: the first argument of
//! the process that [`crate::daemon`] starts.

use std::path::{Path, PathBuf};

use millpond_server::source::ConfSource;
use millpond_system::log::error::{ErrorLog, Level};
use millpond_system::log::file::LogFile;

/// Directory that relative paths start at unless `-p` says otherwise.
pub(crate) const PREFIX: &str = "/etc/millpond/";
/// The configuration file unless `-c` says otherwise.
pub(crate) const CONF_PATH: &str = "/etc/millpond/millpond.conf";
/// The log of errors until the configuration names one.
pub(crate) const ERROR_LOG: &str = "/var/log/millpond/error.log";
/// The first argument of a process that runs in the background.
pub(crate) const DAEMON_CHILD: &str = "--daemon-child";

/// The word that waits for the outcome of a reload.
const WAIT: &str = "--wait";

/// Action that the program was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Serve.
    Run,
    /// Test the configuration.
    Test,
    /// Send a signal to the running process.
    Signal(SignalName),
}

/// The words of `-s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignalName {
    /// End now.
    Stop,
    /// End gracefully.
    Quit,
    /// Open logs again.
    Reopen,
    /// Read the configuration again.
    Reload,
}

/// Texts that `-v`, `-V` and `-h` asked to be printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Show {
    /// Name and version.
    pub(crate) version: bool,
    /// True if the modules that work are printed.
    pub(crate) configure: bool,
    /// The options.
    pub(crate) help: bool,
}

/// The arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arguments {
    /// Action to take.
    pub(crate) action: Action,
    /// Texts to print first.
    pub(crate) show: Show,
    /// `-T`: print the configuration.
    pub(crate) dump: bool,
    /// `-q`: say nothing but errors.
    pub(crate) quiet: bool,
    /// `--wait`: a reload's outcome is waited for.
    pub(crate) wait: bool,
    /// True in the process that runs in the background.
    pub(crate) is_daemon_child: bool,
    prefix: Option<String>,
    conf: Option<String>,
    error_log: Option<String>,
    globals: Option<String>,
}

/// A command line that is wrong; in nginx's words.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ArgumentError {
    /// The word is not an option.
    #[error("invalid option: \"{0}\"")]
    Invalid(String),
    /// An option without its value.
    #[error("option \"-{0}\" requires {1}")]
    Missing(char, &'static str),
    /// Nothing to wait for.
    #[error("option \"{WAIT}\" is for \"-s reload\"")]
    Wait,
}

impl Arguments {
    /// Reads the arguments behind the program's name.
    pub(crate) fn parse(words: impl Iterator<Item = String>) -> Result<Arguments, ArgumentError> {
        let mut arguments = Arguments {
            action: Action::Run,
            show: Show::default(),
            dump: false,
            quiet: false,
            wait: false,
            is_daemon_child: false,
            prefix: None,
            conf: None,
            error_log: None,
            globals: None,
        };
        let mut words = words.peekable();
        if words.next_if(|word| word == DAEMON_CHILD).is_some() {
            arguments.is_daemon_child = true;
        }
        while let Some(word) = words.next() {
            if word == WAIT {
                arguments.wait = true;
                continue;
            }
            let Some(letters) = word.strip_prefix('-') else {
                return Err(ArgumentError::Invalid(word));
            };
            arguments.apply_letters(letters, &mut words)?;
        }
        if arguments.wait && arguments.action != Action::Signal(SignalName::Reload) {
            return Err(ArgumentError::Wait);
        }
        Ok(arguments)
    }

    fn apply_letters(
        &mut self,
        mut letters: &str,
        words: &mut impl Iterator<Item = String>,
    ) -> Result<(), ArgumentError> {
        while let Some(letter) = letters.chars().next() {
            letters = letters.get(letter.len_utf8()..).unwrap_or_default();
            let mut value = |what| match letters {
                "" => words.next().ok_or(ArgumentError::Missing(letter, what)),
                glued => Ok(glued.to_owned()),
            };
            match letter {
                '?' | 'h' => (self.show.version, self.show.help) = (true, true),
                'v' => self.show.version = true,
                'V' => (self.show.version, self.show.configure) = (true, true),
                't' => self.action = Action::Test,
                'T' => (self.action, self.dump) = (Action::Test, true),
                'q' => self.quiet = true,
                'p' => self.prefix = Some(value("directory name")?),
                'e' => self.error_log = Some(value("file name")?),
                'c' => self.conf = Some(value("file name")?),
                'g' => self.globals = Some(value("parameter")?),
                's' => self.action = Action::Signal(signal_name(&value("parameter")?)?),
                other => return Err(ArgumentError::Invalid(other.to_string())),
            }
            if "pecgs".contains(letter) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Directory that relative paths start at.
    pub(crate) fn prefix(&self) -> PathBuf {
        PathBuf::from(self.prefix.as_deref().unwrap_or(PREFIX))
    }

    /// Lets relative paths go on to mean what they mean now, wherever the process goes.
    pub(crate) fn make_absolute(&mut self) {
        if let Some(prefix) = &mut self.prefix
            && let Ok(path) = std::path::absolute(&*prefix)
        {
            *prefix = path.display().to_string();
        }
    }

    /// The configuration file.
    pub(crate) fn conf_path(&self) -> PathBuf {
        conf_path(self.conf.as_deref(), self.prefix.as_deref())
    }

    /// The log that is used until the configuration names another.
    pub(crate) fn error_log(&self) -> ErrorLog {
        let file = match self.error_log.as_deref() {
            Some("" | "stderr") => LogFile::stderr(),
            path => LogFile::at(&self.prefix().join(Path::new(path.unwrap_or(ERROR_LOG)))),
        };
        ErrorLog::to(file, Level::Notice)
    }

    /// Source that the configuration is read from.
    pub(crate) fn conf_source(&self, error_log: ErrorLog) -> ConfSource {
        ConfSource {
            path: self.conf_path(),
            prefix: self.prefix(),
            globals: self.globals.clone(),
            files: Default::default(),
            error_log,
            beside: Default::default(),
        }
    }
}

/// The file that `-c` and `-p` name, by one rule for the server and all commands: a relative name
/// starts at the prefix, as in nginx. Where there is no such file, and no prefix was named, it
/// starts at the current directory.
pub(crate) fn conf_path(conf: Option<&str>, prefix: Option<&str>) -> PathBuf {
    let name = conf.unwrap_or(CONF_PATH);
    let path = Path::new(prefix.unwrap_or(PREFIX)).join(name);
    if prefix.is_none() && !path.exists() {
        let here = std::env::current_dir().unwrap_or_default().join(name);
        if here.exists() {
            return here;
        }
    }
    path
}

fn signal_name(word: &str) -> Result<SignalName, ArgumentError> {
    match word {
        "stop" => Ok(SignalName::Stop),
        "quit" => Ok(SignalName::Quit),
        "reopen" => Ok(SignalName::Reopen),
        "reload" => Ok(SignalName::Reload),
        other => Err(ArgumentError::Invalid(format!("-s {other}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_to_begin_with_is_right() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../conf/millpond.conf");
        let arguments = parse(&format!("-c {path}")).unwrap();
        let reading = arguments.conf_source(arguments.error_log()).read();
        let findings: Vec<_> = reading.diagnostics.iter().collect();
        assert!(
            reading.conf.is_some() && findings.is_empty(),
            "{findings:?}"
        );
    }

    fn parse(text: &str) -> Result<Arguments, String> {
        let words = text.split_whitespace().map(str::to_owned);
        Arguments::parse(words).map_err(|error| error.to_string())
    }

    #[test]
    fn letters_are_joined_and_values_glued() {
        let arguments = parse("-tq -p/x -c a.conf").unwrap();
        assert_eq!(arguments.action, Action::Test);
        assert!(arguments.quiet && !arguments.dump);
        assert_eq!(arguments.conf_path(), Path::new("/x/a.conf"));
        assert_eq!(parse("-Tqp /y").unwrap().prefix(), Path::new("/y"));
        assert_eq!(
            parse("-s reload").unwrap().action,
            Action::Signal(SignalName::Reload)
        );
        assert_eq!(
            parse("-squit").unwrap().action,
            Action::Signal(SignalName::Quit)
        );
        assert!(parse("-s reload --wait").unwrap().wait);
        assert!(parse("-V").unwrap().show.configure);
        assert_eq!(parse("").unwrap().conf_path(), Path::new(CONF_PATH));
    }

    #[test]
    fn mistakes_are_worded_as_nginx_words_them() {
        let cases = [
            ("x", "invalid option: \"x\""),
            ("-x", "invalid option: \"x\""),
            ("-tx", "invalid option: \"x\""),
            ("-p", "option \"-p\" requires directory name"),
            ("-c", "option \"-c\" requires file name"),
            ("-g", "option \"-g\" requires parameter"),
            ("-s bad", "invalid option: \"-s bad\""),
            ("-t --wait", "option \"--wait\" is for \"-s reload\""),
        ];
        for (text, message) in cases {
            assert_eq!(parse(text).unwrap_err(), message, "{text}");
        }
    }
}
