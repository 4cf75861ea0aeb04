"""The command line. Heavy imports stay inside the commands, so that --help answers at once.

Exit codes: 0 fine, 1 findings, 2 cannot run. An error names the setting, the value and the cure.
"""

import typer

from healthsvc import __version__
from healthsvc.cli.backtesting import backtest
from healthsvc.cli.doctor import doctor
from healthsvc.cli.importing import import_logs
from healthsvc.cli.once import score, train
from healthsvc.cli.serving import serve
from healthsvc.cli.settings import check_config
from healthsvc.cli.simulating import simulate

app = typer.Typer(
    name="healthsvc",
    help="Predictive GPU health: which GPU will fail, how, how soon, why, and what to do.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (serve, doctor, train, score, backtest, simulate):
    app.command()(command)
app.command("import")(import_logs)
app.command("check-config")(check_config)


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


def main() -> None:
    """Entry point."""
    app()
