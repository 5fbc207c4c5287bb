"""A search agent in one file: it reasons, searches and answers in tags, as Search-R1 does.

    make quickstart                     # installs jaxrag, and fills the cache that this reads
    jaxrag run --config examples/own_method.py --workdir runs/agent

SmolLM2 is too small to use a search; a larger model is a setting:
``--config.model=Local --config.model.checkpoint=DIRECTORY``, and ``--config.method.turns`` and all
other settings likewise. Search-R1: Jin et al. (2025); its prompt is in our words.
"""

import dataclasses

import jaxrag
from jaxrag.runs.run import Run
from jaxrag.steps.episode import Episode, Pool
from jaxrag.steps.prompts import Template
from jaxrag.steps.reader import Reader, Reply
from jaxrag.steps.tools import Needs

PROMPT = Template(
    user="Think about the question. To look something up, write <search>words</search>; what is "
    "found follows. When you know the answer, write <answer>it</answer>.\n"
    "Question: {question}\n{so_far}",
    stop=("</search>", "</answer>"),
    chat=False,
)


@dataclasses.dataclass(frozen=True)
class SearchAgent:
    """Reasons, searches and answers in tags.

    Attributes:
      turns: most generations.
      k: passages of a search.
      tokens: most new tokens of a turn.
      reader: layout of the passages.
    """

    name = "search_agent"
    needs = Needs(search=True)

    turns: int = 3
    k: int = 1
    tokens: int = 64
    reader: Reader = Reader(prompts="small")

    def __post_init__(self) -> None:
        self.reader.check_stated(self.name)  # the agent's own words are the answer

    async def answer(self, episode: Episode) -> Reply:
        """Takes turns until one answers."""
        text, read = "", Pool()
        for turn in range(1, self.turns + 1):
            said = (await episode.ask(PROMPT, so_far=text, limit=self.tokens)).raw
            _, tag, query = said.rpartition("<search>")
            if not tag:
                _, tag, answer = said.rpartition("<answer>")
                return episode.finish(answer.strip(), raw=text + said, junk=not tag, read=read)
            found = await episode.search(query.strip(), self.k, path=f"turn {turn}")
            read = read.union(found)
            text += f"{said}</search>\n<information>{episode.shown(found)}</information>\n"
        return episode.finish("", raw=text, junk=True, read=read)


def get_config() -> Run:
    """The data, model and index of the quickstart."""
    standard = jaxrag.load("configs/dtr.py:standard_rag@quickstart").settings
    return dataclasses.replace(standard, method=SearchAgent(), label="", limit=20)
