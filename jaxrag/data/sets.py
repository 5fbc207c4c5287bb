"""The published sets of questions as a table: where each lies, its sizes, and how it is read."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from jaxrag.core.jsonl_input import InputLine
from jaxrag.data.corpora import TITLE_CORPORA
from jaxrag.data.dataset import OTHERS, OWN, SetRow
from jaxrag.data.downloads import published_name
from jaxrag.data.formats import own_forms
from jaxrag.data.formats.dpr import with_dpr_gold
from jaxrag.data.formats.flashrag import read_flashrag
from jaxrag.types import InputError

_FLASHRAG = "hf:RUC-NLPIR/FlashRAG_datasets:"
_DPR = "https://dl.fbaipublicfiles.com/dpr/data/retriever/biencoder-"
_MARCO = "https://msmarco.z22.web.core.windows.net/msmarcoranking/"
_MARCO_SMALL = f"{_MARCO}collectionandqueries.tar.gz"
_TREC = "https://trec.nist.gov/data/deep/"
_TWO_WIKI = "https://www.dropbox.com/s/ms2m13252h6xubs/data_ids_april7.zip?dl=1"
_STRATEGYQA = "https://storage.googleapis.com/ai2i/strategyqa/data/strategyqa_dataset.zip"
_ARC = "https://ai2-public-datasets.s3-us-west-2.amazonaws.com/arc/ARC-V1-Feb2018.zip"
_ARC_PAPER = "Clark et al., Think you have Solved Question Answering? Try ARC, 2018"
_KILT = "Petroni et al., KILT, NAACL 2021"


@dataclasses.dataclass(frozen=True)
class PublishedSet:
    """A published set of questions.

    Splits are named train, dev and test as in papers, whatever the files are called.

    Attributes:
      splits: number of questions by split.
      evaluated: the split that papers evaluate; "" is test, or dev where there is no test.
      files: addresses (`jaxrag.data.downloads`) of all that a split is read from, by split; or one
        for all, with "{split}" in it. "" is FlashRAG's file in the folder ``name``.
      task: one of `jaxrag.data.question_kinds.TASKS`.
      corpus: name of the corpus that papers search; `OWN` is the passages that the set brings.
      gold: by split, addresses of DPR's training files, whose gold passages are added if at hand.
      read: reads a split from its files; None is FlashRAG's form.
      where: by split, which lines of its file are of it; all if there is no entry.
      contexts: name of the corpus of the passages that the set brings; "" is NAME-contexts.
      contexts_size: number of these over all splits, as papers give it, so within 5 %; or 0.
      licence, source: of the files that are read; source is a page.
    """

    name: str
    about: str
    splits: Mapping[str, int]
    citation: str
    evaluated: str = ""
    files: str | Mapping[str, Sequence[str]] = ""
    task: str = "open"
    corpus: str = "psgs_w100"
    gold: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    read: Callable[[Sequence[Path], str], Iterator[SetRow]] | None = None
    where: Mapping[str, Callable[[InputLine], bool]] = dataclasses.field(default_factory=dict)
    contexts: str = ""
    contexts_size: int = 0
    licence: str = "CC BY-SA 4.0 (FlashRAG's copy)"
    source: str = "https://huggingface.co/datasets/RUC-NLPIR/FlashRAG_datasets"

    def __post_init__(self) -> None:
        split = self.evaluated or ("test" if "test" in self.splits else "dev")
        object.__setattr__(self, "evaluated", split)

    def addresses(self, split: str) -> Sequence[str]:
        """Addresses of all that a split is read from but the gold passages."""
        if not isinstance(self.files, str):
            return self.files[split]
        files = self.files or f"{_FLASHRAG}{self.name}/{{split}}.jsonl"
        return (files.format(split=split),)

    @property
    def contexts_name(self) -> str:
        """Name of the corpus of the passages that the set brings."""
        return self.contexts or f"{self.name}-{OWN}"

    def rows(self, files: Mapping[str, Path], split: str) -> Iterator[SetRow]:
        """The questions of a split in their published order, from paths by published name."""
        paths = [files[published_name(address)] for address in self.addresses(split)]
        if self.read is not None:
            rows = self.read(paths, split)
        else:
            titles_of = self.corpus if self.corpus in TITLE_CORPORA else ""
            where = self.where.get(split)
            rows = read_flashrag(paths[0], task=self.task, titles_of=titles_of, where=where)
        names = map(published_name, self.gold.get(split, ()))
        gold = [files[name] for name in names if name in files]
        return with_dpr_gold(rows, gold) if gold else rows


def _dpr(**names: Sequence[str]) -> dict[str, list[str]]:
    """Addresses of DPR's training files by split."""
    return {split: [f"{_DPR}{name}.json.gz" for name in files] for split, files in names.items()}


_ROWS = (
    PublishedSet(
        "nq",
        "Natural Questions, open: questions of Google's users with short answers",
        {"train": 79_168, "dev": 8_757, "test": 3_610},
        "Kwiatkowski et al., Natural Questions, TACL 2019; Lee et al., Latent Retrieval for Weakly "
        "Supervised Open Domain Question Answering, ACL 2019",
        gold=_dpr(train=["nq-train"], dev=["nq-dev"]),
        licence="CC BY-SA 3.0; DPR's files CC BY-NC 4.0",
    ),
    PublishedSet(
        "triviaqa",
        "TriviaQA: questions of quiz players, with the aliases of their answers",
        {"train": 78_785, "dev": 8_837, "test": 11_313},
        "Joshi et al., TriviaQA, ACL 2017",
        gold=_dpr(train=["trivia-train"], dev=["trivia-dev"]),
        licence="no claim to the questions (University of Washington); DPR's files CC BY-NC 4.0",
    ),
    PublishedSet(
        "webq",
        "WebQuestions: questions that Google suggested, with names from Freebase as answers",
        {"train": 3_778, "test": 2_032},
        "Berant et al., Semantic Parsing on Freebase from Question-Answer Pairs, EMNLP 2013",
        files=f"{_FLASHRAG}web_questions/{{split}}.jsonl",
        gold=_dpr(train=["webquestions-train", "webquestions-dev"]),
        licence="CC BY 4.0; DPR's files CC BY-NC 4.0",
    ),
    PublishedSet(
        "squad",
        "SQuAD 1.1: questions about paragraphs of Wikipedia, whose answers are spans of them",
        {"train": 87_599, "dev": 10_570},
        "Rajpurkar et al., SQuAD: 100,000+ Questions for Machine Comprehension of Text, EMNLP 2016",
        gold=_dpr(train=["squad1-train", "squad1-dev"]),
        licence="CC BY-SA 4.0; DPR's files CC BY-NC 4.0",
    ),
    PublishedSet(
        "hotpotqa",
        "HotpotQA: questions over two paragraphs of Wikipedia",
        {"train": 90_447, "dev": 7_405},
        "Yang et al., HotpotQA: A Dataset for Diverse, Explainable Multi-hop Question Answering, "
        "EMNLP 2018",
        corpus="hotpotqa_abstracts",
        licence="CC BY-SA 4.0",
    ),
    PublishedSet(
        "2wiki",
        "2WikiMultiHopQA: questions over two to four paragraphs of Wikipedia, built from Wikidata",
        {"train": 167_454, "dev": 12_576, "test": 12_576},
        "Ho et al., Constructing A Multi-hop QA Dataset for Comprehensive Evaluation of Reasoning "
        "Steps, COLING 2020",
        evaluated="dev",
        files={
            split: (f"{_TWO_WIKI}#{split}.json", f"{_TWO_WIKI}#id_aliases.json")
            for split in ("train", "dev", "test")
        },
        corpus="2wiki_contexts",
        read=own_forms.read_2wiki,
        contexts="2wiki_contexts",
        contexts_size=431_000,
        licence="Apache 2.0 (of the authors' repository; none is stated for the data)",
        source="https://github.com/Alab-NII/2wikimultihop",
    ),
    PublishedSet(
        "popqa",
        "PopQA: questions about entities of all popularities, made from Wikidata by templates",
        {"test": 14_267, "longtail": 1_399},
        "Mallen et al., When Not to Trust Language Models: Investigating Effectiveness of "
        "Parametric and Non-Parametric Memories, ACL 2023",
        files=dict.fromkeys(("test", "longtail"), (f"{_FLASHRAG}popqa/test.jsonl",)),
        # subjects whose pages have fewer than 100 views a month
        where={"longtail": lambda line: line.record("metadata").integer("s_pop") < 100},
        licence="MIT",
    ),
    PublishedSet(
        "ambigqa",
        "AmbigQA (AmbigNQ): questions of Natural Questions, many with several readings",
        {"train": 10_036, "dev": 2_002},
        "Min et al., AmbigQA: Answering Ambiguous Open-domain Questions, EMNLP 2020",
        files=f"{_FLASHRAG}ambig_qa/{{split}}.jsonl",
        licence="CC BY-SA 3.0",
    ),
    PublishedSet(
        "boolq",
        "BoolQ: yes/no questions of web users, each with a paragraph of Wikipedia",
        {"train": 9_427, "dev": 3_270},
        "Clark et al., BoolQ: Exploring the Surprising Difficulty of Natural Yes/No Questions, "
        "NAACL 2019",
        task="yes_no",
        corpus=OWN,
        licence="CC BY-SA 3.0",
    ),
    PublishedSet(
        "strategyqa",
        "StrategyQA: yes/no questions whose steps of reasoning are not in the question",
        {"train": 2_290},
        "Geva et al., Did Aristotle Use a Laptop? A Question Answering Benchmark with Implicit "
        "Reasoning Strategies, TACL 2021",
        files={
            "train": (
                f"{_STRATEGYQA}#strategyqa_train.json",
                f"{_STRATEGYQA}#strategyqa_train_paragraphs.json",
            )
        },
        evaluated="train",
        task="yes_no",
        corpus=OWN,
        read=own_forms.read_strategyqa,
        licence="MIT (of the authors' repository; none is stated for the data)",
        source="https://allenai.org/data/strategyqa",
    ),
    PublishedSet(
        "medmcqa",
        "MedMCQA: questions of Indian medical entrance examinations with four options",
        {"train": 182_822, "dev": 4_183},
        "Pal et al., MedMCQA: A Large-scale Multi-Subject Multi-Choice Dataset for Medical domain "
        "Question Answering, CHIL 2022",
        files={
            split: (f"hf:openlifescienceai/medmcqa:data/{name}-00000-of-00001.parquet",)
            for split, name in (("train", "train"), ("dev", "validation"))
        },
        task="multiple_choice",
        corpus=OTHERS,
        read=own_forms.read_medmcqa,
        licence="Apache 2.0",
        source="https://huggingface.co/datasets/openlifescienceai/medmcqa",
    ),
    PublishedSet(
        "pubhealth",
        "PubHealth: claims about public health that fact checkers verified",
        {"train": 8_079, "dev": 1_009, "test": 987},
        "Kotonya and Toni, Explainable Automated Fact-Checking for Public Health Claims, EMNLP "
        "2020",
        files="pubhealth/{split}.tsv",
        task="fact_checking",
        read=own_forms.read_pubhealth,
        licence="MIT (of the authors' repository)",
        source="https://github.com/neemakot/Health-Fact-Checking",
    ),
    PublishedSet(
        "arc_challenge",
        "ARC-Challenge: science questions of school exams with choices",
        {"train": 1_119, "dev": 299, "test": 1_172},
        _ARC_PAPER,
        files={
            split: (f"{_ARC}#ARC-Challenge-{split.title()}.jsonl",)
            for split in ("train", "dev", "test")
        },
        task="multiple_choice",
        read=own_forms.read_arc,
        licence="CC BY-SA 4.0",
        source="https://allenai.org/data/arc",
    ),
    PublishedSet(
        "msmarco",
        "MS MARCO passage ranking: queries of a web search engine with relevant passages",
        {"train": 502_939, "dev": 6_980, "dl19": 43, "dl20": 54},
        "Bajaj et al., MS MARCO: A Human Generated MAchine Reading COmprehension Dataset, 2016; "
        "Craswell et al., Overview of the TREC 2019 (2020) Deep Learning Track",
        files={
            "train": (f"{_MARCO}queries.tar.gz#queries.train.tsv", f"{_MARCO}qrels.train.tsv"),
            "dev": (f"{_MARCO_SMALL}#queries.dev.small.tsv", f"{_MARCO_SMALL}#qrels.dev.small.tsv"),
            "dl19": (f"{_MARCO}msmarco-test2019-queries.tsv.gz", f"{_TREC}2019qrels-pass.txt"),
            "dl20": (f"{_MARCO}msmarco-test2020-queries.tsv.gz", f"{_TREC}2020qrels-pass.txt"),
        },
        corpus="msmarco",
        read=own_forms.read_msmarco,
        licence="non-commercial research (Microsoft's terms for MS MARCO)",
        source="https://microsoft.github.io/msmarco",
    ),
    PublishedSet(
        "musique",
        "MuSiQue-Ans: questions composed of two to four single-hop ones",
        {"train": 19_938, "dev": 2_417},
        "Trivedi et al., MuSiQue: Multihop Questions via Single-hop Question "
        "Composition, TACL 2022",
    ),
    PublishedSet(
        "bamboogle",
        "Bamboogle: two-hop questions that a search engine answers wrongly",
        {"test": 125},
        "Press et al., Measuring and Narrowing the Compositionality Gap, Findings of EMNLP 2023",
    ),
    PublishedSet(
        "narrativeqa",
        "NarrativeQA: questions about books and film scripts, with free answers",
        {"train": 32_747, "dev": 3_461, "test": 10_557},
        "Kočiský et al., The NarrativeQA Reading Comprehension Challenge, TACL 2018",
    ),
    PublishedSet(
        "siqa",
        "Social IQa: social situations with three answers",
        {"train": 33_410, "dev": 1_954},
        "Sap et al., Social IQa: Commonsense Reasoning about Social Interactions, EMNLP 2019",
        task="multiple_choice",
    ),
    PublishedSet(
        "commonsenseqa",
        "CommonsenseQA: questions of common sense with five answers",
        {"train": 9_741, "dev": 1_221},
        "Talmor et al., CommonsenseQA, NAACL 2019",
        files=f"{_FLASHRAG}commonsense_qa/{{split}}.jsonl",
        task="multiple_choice",
    ),
    PublishedSet(
        "piqa",
        "PIQA: physical goals with two ways to reach them",
        {"train": 16_113, "dev": 1_838},
        "Bisk et al., PIQA: Reasoning about Physical Commonsense in Natural Language, AAAI 2020",
        task="multiple_choice",
    ),
    PublishedSet(
        "mmlu",
        "MMLU: questions of examinations in 57 subjects with four answers",
        {"train": 99_842, "dev": 1_531, "test": 14_042},
        "Hendrycks et al., Measuring Massive Multitask Language Understanding, ICLR 2021",
        task="multiple_choice",
    ),
    PublishedSet(
        "truthfulqa",
        "TruthfulQA: questions that many people answer wrongly, with choices",
        {"dev": 817},
        "Lin et al., TruthfulQA: Measuring How Models Mimic Human Falsehoods, ACL 2022",
        files=f"{_FLASHRAG}truthful_qa/{{split}}.jsonl",
        task="multiple_choice",
    ),
    PublishedSet(
        "hellaswag",
        "HellaSwag: situations with four ways to go on",
        {"train": 39_905, "dev": 10_042},
        "Zellers et al., HellaSwag: Can a Machine Really Finish Your Sentence?, ACL 2019",
        task="multiple_choice",
    ),
    PublishedSet(
        "arc",
        "ARC: the easy and the challenging science questions of school exams",
        {"train": 3_370, "dev": 869, "test": 3_548},
        _ARC_PAPER,
        task="multiple_choice",
    ),
    PublishedSet(
        "openbookqa",
        "OpenBookQA: questions of elementary science with four answers",
        {"train": 4_957, "dev": 500, "test": 500},
        "Mihaylov et al., Can a Suit of Armor Conduct Electricity?, EMNLP 2018",
        task="multiple_choice",
    ),
    PublishedSet(
        "quartz",
        "QuaRTz: qualitative relationships with two answers",
        {"train": 2_696, "dev": 384, "test": 784},
        "Tafjord et al., QuaRTz: An Open-Domain Dataset of Qualitative Relationship "
        "Questions, EMNLP 2019",
        task="multiple_choice",
    ),
    PublishedSet(
        "fever",
        "FEVER: claims that Wikipedia supports or refutes",
        {"train": 104_966, "dev": 10_444},
        "Thorne et al., FEVER: a Large-scale Dataset for Fact Extraction and "
        f"VERification, NAACL 2018; {_KILT}",
        task="fact_checking",
    ),
    PublishedSet(
        "aida",
        "AIDA CoNLL-YAGO: mentions in news to be linked to pages of Wikipedia",
        {"train": 18_395, "dev": 4_784},
        f"Hoffart et al., Robust Disambiguation of Named Entities in Text, EMNLP 2011; {_KILT}",
        files=f"{_FLASHRAG}ay2/{{split}}.jsonl",
    ),
    PublishedSet(
        "wned",
        "WNED-WIKI: mentions in Wikipedia to be linked to its pages",
        {"dev": 8_995},
        f"Guo and Barbosa, Robust Named Entity Disambiguation with Random Walks, 2018; {_KILT}",
    ),
    PublishedSet(
        "trex",
        "T-REx: a subject and a relation, of which the object is asked",
        {"train": 2_284_168, "dev": 5_000},
        "Elsahar et al., T-REx: A Large Scale Alignment of Natural Language with "
        f"Knowledge Base Triples, LREC 2018; {_KILT}",
    ),
    PublishedSet(
        "zsre",
        "Zero-shot RE: relations that training has not, of which the object is asked",
        {"train": 147_909, "dev": 3_724},
        "Levy et al., Zero-Shot Relation Extraction via Reading Comprehension, CoNLL "
        f"2017; {_KILT}",
    ),
)

SETS: Mapping[str, PublishedSet] = {row.name: row for row in _ROWS}


def named_set(name: str) -> PublishedSet:
    """The published set of a name; InputError that has the nearest name for an unknown one."""
    if name not in SETS:
        near = difflib.get_close_matches(name, SETS, 1, 0)[0]
        raise InputError(
            f"{name!r} is no published set; there are {', '.join(sorted(SETS))}. Nearest: {near}."
        )
    return SETS[name]
