"""The published sets of questions, one file each."""

from collections.abc import Mapping

from jaxrag.data.builder import BenchmarkBuilder
from jaxrag.data.sets.ambigqa import AmbigQA
from jaxrag.data.sets.arc_challenge import ArcChallenge
from jaxrag.data.sets.boolq import BoolQ
from jaxrag.data.sets.hotpotqa import HotpotQA
from jaxrag.data.sets.medmcqa import MedMCQA
from jaxrag.data.sets.msmarco import MSMarco
from jaxrag.data.sets.nq import NaturalQuestions
from jaxrag.data.sets.popqa import PopQA
from jaxrag.data.sets.pubhealth import PubHealth
from jaxrag.data.sets.squad import Squad
from jaxrag.data.sets.strategyqa import StrategyQA
from jaxrag.data.sets.triviaqa import TriviaQA
from jaxrag.data.sets.webq import WebQuestions
from jaxrag.data.sets.wiki2 import TwoWiki

SETS: Mapping[str, type[BenchmarkBuilder]] = {
    one.NAME: one
    for one in (
        NaturalQuestions,
        TriviaQA,
        WebQuestions,
        Squad,
        HotpotQA,
        TwoWiki,
        PopQA,
        AmbigQA,
        BoolQ,
        StrategyQA,
        MedMCQA,
        PubHealth,
        ArcChallenge,
        MSMarco,
    )
}
