"""The man page of a tool and what shells complete, from its options."""


def spelled(action):
    """"-o, --output=FOLDER" of an option."""
    value = f"={action.metavar or '|'.join(action.choices)}" if takes(action) else ""
    return ", ".join(action.option_strings) + value


def takes(action):
    return action.nargs != 0


def options(parser):
    return [a for a in parser.own_actions() if a.option_strings]


def help_text(parser):
    lines = ["usage: " + parser.usage.replace("%(prog)s", parser.prog), parser.description, ""]
    for a in options(parser):
        name = "  " + spelled(a)
        lines.append(f"{name:30} {a.help}" if len(name) < 30 else f"{name}\n{'':30} {a.help}")
    return "\n".join(lines) + "\n"


def roff(text):
    return text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")


def man(parser, version):
    about, usage = parser.description.replace("\n", " "), parser.usage.replace("%(prog)s", parser.prog).split("\n")
    lines = [f'.TH {parser.prog} 1 "" "{f"Heddle {version}".strip()}"', ".SH NAME",
             roff(f"{parser.prog} - {parser.purpose}"), ".SH SYNOPSIS"]
    for line in usage:
        lines += [f".B {roff(line.strip())}", ".br"]
    lines += [".SH DESCRIPTION", roff(about), ".SH OPTIONS"]
    for a in options(parser):
        lines += [".TP", f".B {roff(spelled(a))}", roff(a.help)]
    return "\n".join(lines)


def quoted(text):
    return text.replace("'", "").replace("[", "(").replace("]", ")").replace(":", ",")


def bash(parser):
    cases = "\n".join(f"    {a.option_strings[-1]}) COMPREPLY=($(compgen -W '{' '.join(a.choices)}' -- \"$word\")); "
                      f"return ;;" for a in options(parser) if a.choices)
    names = " ".join(a.option_strings[-1] for a in options(parser))
    function = "_" + parser.prog.replace("-", "_")
    return f"""{function}() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}}
    [ "$before" = = ] && before=${{COMP_WORDS[COMP_CWORD-2]}}
    [ "$word" = = ] && word=
    case $before in
{cases}
    esac
    [[ $word == -* ]] && COMPREPLY=($(compgen -W '{names}' -- "$word"))
}}
complete -o default -F {function} {parser.prog}"""


def zsh(parser):
    lines = [f"#compdef {parser.prog}", "_arguments"]
    for a in options(parser):
        what = f":word:({' '.join(a.choices)})" if a.choices else ":value:_files" if takes(a) else ""
        lines.append(f"    '{a.option_strings[-1]}{'=' if what else ''}[{quoted(a.help)}]{what}'")
    return " \\\n".join(lines[1:] + ["    '*:file:_files'"]).join((lines[0] + "\n", ""))


def fish(parser):
    lines = []
    for a in options(parser):
        short = "".join(f" -s {o[1]}" for o in a.option_strings if not o.startswith("--"))
        what = f" -x -a '{' '.join(a.choices)}'" if a.choices else " -r" if takes(a) else ""
        lines.append(f"complete -c {parser.prog} -l {a.option_strings[-1][2:]}{short}{what} -d '{quoted(a.help)}'")
    return "\n".join(lines)


SHELLS = {"bash": bash, "zsh": zsh, "fish": fish}
