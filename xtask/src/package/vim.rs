//! The syntax of configurations for vim: directives, as the manual names them, variables, texts and
//! numbers in colours of their own.

use super::check::{Checked, said};
use super::stage::{Stage, write};
use crate::workspace;
use anyhow::{Result, ensure};
use std::fs;
use std::process::Command;

/// Folder of the files, in the stage.
pub(super) const FOLDER: &str = "vim";

/// The kinds of files that are configurations.
const DETECT: &str = "\
\" Configurations of Millpond.
autocmd BufRead,BufNewFile */etc/millpond/*.conf,millpond.conf,*/millpond/conf.d/*.conf \
setfiletype millpond
";

/// The form of comments, for those who write them by a key.
const PLUGIN: &str = "\
\" Configurations of Millpond.
if exists('b:did_ftplugin')
  finish
endif
let b:did_ftplugin = 1
setlocal comments=:# commentstring=#\\ %s
let b:undo_ftplugin = 'setlocal comments< commentstring<'
";

const HEAD: &str = "\
\" Configurations of Millpond; directives are those of its manual.
if exists('b:current_syntax')
  finish
endif
syntax match millpondNumber /\\v<\\d+(\\.\\d+)?(ms|[smhdwMykKgG%])?>/
syntax match millpondVariable /\\v\\$\\w+|\\$\\{\\w+}/
syntax region millpondText start=/\"/ skip=/\\\\./ end=/\"/ contains=millpondVariable
syntax region millpondText start=/'/ skip=/\\\\./ end=/'/ contains=millpondVariable
syntax match millpondName /\\v(^|[;{}])\\s*\\zs\\h\\w*/ contains=millpondDirective
syntax match millpondComment /\\v(^|\\s|[;{}])\\zs#.*$/
";

const TAIL: &str = "\
highlight default link millpondComment Comment
highlight default link millpondDirective Statement
highlight default link millpondName Identifier
highlight default link millpondNumber Number
highlight default link millpondText String
highlight default link millpondVariable PreProc
let b:current_syntax = 'millpond'
";

/// Writes the files into a stage.
pub(super) fn stage(stage: &Stage) -> Result<()> {
    let manual = fs::read_to_string(workspace::root().join("docs/directives.md"))?;
    let names = directives(&manual);
    ensure!(names.contains(&"proxy_cache_path"), "no directives");
    let mut syntax = HEAD.to_string();
    for names in names.chunks(8) {
        syntax += &format!(
            "syntax keyword millpondDirective contained {}\n",
            names.join(" ")
        );
    }
    syntax += TAIL;
    let folder = stage.folder.join(FOLDER);
    write(&folder.join("syntax/millpond.vim"), &syntax)?;
    write(&folder.join("ftdetect/millpond.vim"), DETECT)?;
    write(&folder.join("ftplugin/millpond.vim"), PLUGIN)
}

/// The names of the directives in the manual, in their order by letters.
fn directives(manual: &str) -> Vec<&str> {
    let titles = manual.lines().filter_map(|line| line.strip_prefix("### "));
    let names = titles.map(|title| title.trim_matches('`'));
    let is_name = |name: &&str| {
        let is_letter =
            |byte: u8| byte.is_ascii_lowercase() || byte == b'_' || byte.is_ascii_digit();
        !name.is_empty() && name.bytes().all(is_letter)
    };
    let mut names: Vec<&str> = names.filter(is_name).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The words of a line, where vim must see what they are.
const LINE: &str = "proxy_cache_valid 200 $uri \"a b\"; # why";

/// Vim takes a file for a configuration, and sees the kind of each word.
pub(super) fn check(stage: &Stage) -> Result<Checked> {
    if let Some(no) = Checked::lacks(&["vim"]) {
        return Ok(no);
    }
    let folder = stage.folder.join(FOLDER);
    let conf = stage.folder.join("millpond.conf");
    write(&conf, LINE)?;
    let seen = stage.folder.join("seen");
    let places = ["proxy", "200", "$uri", "a b", "why"];
    let asked: Vec<String> = places
        .iter()
        .map(|word| {
            let column = LINE.find(word).unwrap_or_default() + 1;
            format!("synIDattr(synID(1, {column}, 1), 'name')")
        })
        .collect();
    let script = format!(
        "call writefile([&filetype, &commentstring, {}], '{}')",
        asked.join(", "),
        seen.display()
    );
    let mut vim = Command::new("vim");
    vim.args(["-N", "-n", "-u", "NONE", "-i", "NONE", "-es"]);
    vim.args(["--cmd", &format!("set runtimepath^={}", folder.display())]);
    vim.args(["-c", "filetype plugin on", "-c", "syntax on", "-c"]);
    vim.arg(format!("edit {}", conf.display()));
    said(vim.args(["-c", &script, "-c", "qall!"]))?;
    let text = fs::read_to_string(&seen)?;
    let expected = "millpond\n# %s\nmillpondDirective\nmillpondNumber\nmillpondVariable\n\
                    millpondText\nmillpondComment\n";
    ensure!(text == expected, "vim sees {text}");
    Ok(Checked::Yes)
}
