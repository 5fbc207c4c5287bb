"""Claims of the five papers, tied to cells of their tables or to points of their figures.

The texts are ours; the sources are sections and tables of the papers. Where a paper's own table
contradicts its claim, docs/claims.md shows that beside the verdict.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jaxrag.reproduction.claims import At, Claim, FigureClaim
from jaxrag.reproduction.printed.comparison import MEAN_OF_ALL

Q7, Q72 = "Qwen2.5-7B-Instruct", "Qwen2.5-72B-Instruct"
LLAMA = "Llama3-8B"
AVERAGE: Mapping[str, Any] = {"over": "average"}


def _claim(
    place: tuple[str, str],
    name: str,
    text: str,
    ours: str,
    theirs: Sequence[str],
    metric: str = "EM",
    *,
    rows: Mapping[str, Any] = {},
    others: Mapping[str, Any] = {},
    mine: Mapping[str, Any] = {},
    **settings: Any,
) -> Claim:
    """A claim about methods.

    Args:
      place: where the paper makes it, and the table.
      name, text: as in `Claim`, without the paper's prefix in the name.
      ours, theirs: methods.
      metric: that is compared.
      rows: what else identifies the rows; ``others`` of theirs and ``mine`` of ours alone.
      settings: further ones of `Claim`.
    """
    source, table = place
    first: dict[str, Any] = {"method": ours, **rows, **mine}
    against = [{"method": other, **rows, **others} for other in theirs]
    paper = table.partition("/")[0]
    return Claim(f"{paper}/{name}", text, source, table, first, against, metric, **settings)


def _suffix(metric: str) -> str:
    return "" if metric == "EM" else f"-{metric.lower()}"


def _pairs() -> Iterator[Claim]:
    main = ("PAIRS, main results, Table 2", "pairs/table2")
    ablation = ("PAIRS, ablation, Table 3", "pairs/table3")
    earlier = ("no_retrieval", "standard_rag", "hyde", "q2d", "cot")
    for metric in ("EM", "F1"):
        text = f"PAIRS has a higher average {metric} than every earlier method without a reranker."
        yield _claim(
            main, f"best-average-{metric.lower()}", text, "pairs", earlier, metric, **AVERAGE
        )
    text = "PAIRS retrieves for about three quarters of the questions (tested: fewer than 80 %)."
    yield _claim(
        ("PAIRS, abstract, Table 2", "pairs/table2"), "fewer-retrievals", text, "pairs", (),
        "retriever_activation_ratio", lower=True, bound=80.0, **AVERAGE,
    )  # fmt: skip
    text = "On WebQuestions PAIRS is better than DPR-AIS, which always retrieves."
    yield _claim(main, "webq", text, "pairs", ["dpr_ais"], datasets=("webq",))
    for metric in ("EM", "F1"):
        text = f"DPR-AIS has the highest average {metric} of the methods without a reranker."
        name, others = f"dpr-ais-average{_suffix(metric)}", [*earlier, "pairs"]
        yield _claim(main, name, text, "dpr_ais", others, metric, **AVERAGE)
    for name, other, than in (
        ("rerank", "rerank", "reranking alone"),
        ("rerank-q2d", "q2d", "Q2D without one"),
    ):
        for metric in ("EM", "F1"):
            text = f"DPR-AIS with a reranker has a higher average {metric} than {than}."
            name_of = f"{name}{_suffix(metric)}"
            yield _claim(main, name_of, text, "dpr_ais_rerank", [other], metric, **AVERAGE)
    text = "DPR-AIS is better than with either search path alone, on every data set."
    alone = ("dpr_ais_wo_dpr_q", "dpr_ais_wo_dpr_p")
    yield _claim(ablation, "both-paths", text, "dpr_ais", alone)
    text = "DPR-AIS is better than fixed mixtures of both paths, on every data set."
    mixtures = ("dpr_ais_wo_ais_2q1p", "dpr_ais_wo_ais_1q2p")
    yield _claim(ablation, "selection", text, "dpr_ais", mixtures)
    place = ("PAIRS, dynamic weighting, Table 4", "pairs/table4")
    text = "A weight that depends on the angle of question and pseudo-context is better than AIS."
    yield _claim(place, "dynamic", text, "dpr_ais_dynamic", ["dpr_ais"])
    place = ("PAIRS, numeric answers, Table 5", "pairs/table5")
    text = "Retrieval for accepted answers that hold a number raises the average EM."
    yield _claim(place, "numbers", text, "pairs_exclude_num", ["pairs"], **AVERAGE)
    place = ("PAIRS, appendix, Table 7", "pairs/table7")
    text = "With five passages, PAIRS has a higher average EM than Standard RAG."
    yield _claim(place, "five-passages", text, "pairs", ["standard_rag"], **AVERAGE)


def _dtr() -> Iterator[Claim]:
    main = ("DTR, main results, Table 2", "dtr/table2")
    ablation = ("DTR, ablation, Table 3", "dtr/table3")
    best, rag, rows = "dtr_u0.001", ["standard_rag"], {"generator": Q7}
    baselines = (
        "no_retrieval", "standard_rag", "llm_judge_7b", "llm_judge_72b", "hyde", "q2d", "cot"
    )  # fmt: skip
    for generator, size in ((Q7, "7B"), (Q72, "72B")):
        of, end = {"generator": generator}, size.lower()
        for u in ("0.001", "0.005", "0.01"):
            text = f"DTR (u = {u}, {size}) beats Standard RAG in EM on each set."
            yield _claim(main, f"beats-rag-{end}-u{u}", text, f"dtr_u{u}", rag, rows=of)
        for metric in ("EM", "F1"):
            text = f"DTR (u = 0.001, {size}) has a higher average {metric} than any baseline."
            name = f"best-average-{end}{_suffix(metric)}"
            yield _claim(main, name, text, best, baselines, metric, rows=of, **AVERAGE)
        text = f"Without the second search path, DTR ({size}) is worse on every data set."
        yield _claim(ablation, f"dual-path-{end}", text, best, ["dtr_wo_dpr"], rows=of)
        text = f"The gate does not cost EM on average ({size}; tested: better than without)."
        yield _claim(ablation, f"trigger-{end}", text, best, ["dtr_wo_ugt"], rows=of, **AVERAGE)
    text = "DTR has a higher average EM than with fixed mixtures of both paths."
    mixtures = ("dtr_wo_ais_1q2p", "dtr_wo_ais_2q1p")
    yield _claim(ablation, "selection", text, best, mixtures, rows=rows, **AVERAGE)
    text, lower = "A larger threshold retrieves for fewer questions.", ("dtr_u0.001", "dtr_u0.005")
    yield _claim(
        main, "fewer-retrievals", text, "dtr_u0.01", lower, "trigger_ratio", rows=rows, lower=True
    )
    place = ("DTR, retrieval accuracy, Table 4", "dtr/table4")
    expanded = ("hyde", "q2d", "cot")
    for retriever in ("bge-large-en-v1.5", "e5"):
        of, end = {"retriever": retriever}, retriever.partition("-")[0]
        text = f"Dual-path retrieval finds more gold passages than the baselines ({retriever})."
        theirs = ("standard_rag", *expanded)
        yield _claim(place, f"recall-{end}", text, "dpr_ais", theirs, "recall@3", rows=of)
        text = f"Expanded queries find fewer gold passages than the question ({retriever})."
        name = f"expansion-{end}"
        yield _claim(place, name, text, "standard_rag", expanded, "recall@3", rows=of)
    for number, setting in ((6, "five passages"), (7, "e5 as the retriever")):
        place = (f"DTR, appendix F, Table {number}", f"dtr/table{number}")
        for metric in ("EM", "F1"):
            text = f"With {setting}, DTR has a higher average {metric} than Standard RAG."
            name = f"table{number}-average{_suffix(metric)}"
            yield _claim(place, name, text, best, rag, metric, **AVERAGE)


def _r3() -> Iterator[Claim]:
    main = ("R3, main results, Table 1", "r3/table1")
    adaptive, sidr = ("adaptive_rag", "ircot", "dragin", "seakr", "flare"), ["standard_rag_sidr"]
    llama, single = {"generator": LLAMA}, {"generator": LLAMA, "passages": 1}
    for k in (1, 10):
        text = f"R3 is better than the SiDR it starts from on each set ({k} in context)."
        start, of = {"block": "standard_rag"}, {**llama, "passages": k}
        yield _claim(main, f"gain-{k}", text, "r3", sidr, "accuracy", rows=of, others=start)
        text = f"R3 is better than adaptive methods on each set they have ({k} in context)."
        of = {"passages": k}
        yield _claim(main, f"adaptive-{k}", text, "r3", adaptive, "accuracy", rows=of, mine=llama)
    text = "R3 is better on average than Contriever and E5 as they come."
    others = ("standard_rag_contriever_ms", "standard_rag_e5")
    yield _claim(main, "best-retriever", text, "r3", others, "accuracy", rows=single, **AVERAGE)
    tuned, block = ("self_rag_llama3_8b_sidr", "self_rag_llama3_8b"), {"block": "improving_llm"}
    for k, methods in ((1, tuned[:1]), (10, tuned)):
        text = (
            "A tuned retriever is as good as a model tuned for RAG, or better, on some sets "
            f"(tested: better than Self-RAG from Llama3-8B on each set it has, {k} in context)."
        )
        yield _claim(
            main, f"self-rag-{k}", text, "r3", methods, "accuracy",
            rows={"passages": k}, mine=llama, others=block,
        )  # fmt: skip
    text = (
        "On PubHealth a tuned retriever gains more than an instruction-tuned model (tested: R3 "
        "against Llama3-8B-Instruct with SiDR, 1 in context)."
    )
    instruct = {"generator": f"{LLAMA}-Instruct", **block}
    yield _claim(
        main, "instruct-pubhealth", text, "r3", sidr, "accuracy",
        rows={"passages": 1}, mine=llama, others=instruct, datasets=("pubhealth",),
    )  # fmt: skip
    place, block = ("R3, transfer, Table 1", "r3/table1"), {"block": "transfer"}
    for generator in ("Llama3-8B-Instruct", "Phi-3-mini-4k-instruct", "Mistral-7B-Instruct-v0.3"):
        text = f"A retriever tuned with Llama3-8B improves {generator}, too, on average."
        name = f"transfer-{generator.partition('-')[0].lower()}"
        of = {"generator": generator, "passages": 1}
        yield _claim(place, name, text, "r3", sidr, "accuracy", rows=of, others=block, **AVERAGE)
    place = ("R3, preliminary study, Table 4", "r3/table4")
    text = (
        "Some retriever finds a passage that leads to the answer far more often than the best one."
    )
    union, retrievers = "any_retriever_upper_bound", ("sidr_nq", "e5", "contriever_ms")
    yield _claim(place, "upper-bound", text, union, retrievers, "accuracy", datasets=("nq",))
    place = ("R3, appendix E, Table 5", "r3/table5")
    text = "The most relevant negative with a random positive is the best way to draw a pair."
    others = ("r3_sampling_b", "r3_sampling_c")
    yield _claim(place, "sampling", text, "r3_sampling_a", others, "accuracy")
    place = ("R3, appendix, Table 6", "r3/table6")
    for k in (1, 10):
        text = f"Passages ranked by the answer's probability are better ({k} in context)."
        ours, theirs = (f"sidr_ms_rank_by_{by}" for by in ("answer_probability", "relevance"))
        name, of = f"answer-probability-{k}", {"passages": k}
        yield _claim(place, name, text, ours, [theirs], "accuracy", rows=of)
    place = ("R3, main results, Table 8", "r3/table8")
    text = "Tuning for RAG may lower the share of first passages that hold the answer."
    ours, metric = "r3_from_sidr_nq", "ir_accuracy@1"
    yield _claim(place, "ir-may-fall", text, ours, ["standard_rag_sidr_nq"], metric, lower=True)
    place = ("R3, transfer, Table 7", "r3/table7")
    text = "Accuracy grows along the on-policy phase (tested: end against start)."
    end, start = ({"progress_percent": percent} for percent in (100, 0))
    yield _claim(
        place, "progress", text, "r3", ["r3"], "accuracy", rows=llama, mine=end, others=start
    )


def _errr() -> Iterator[Claim]:
    frozen, student, rrr = "frozen_errr", "trainable_errr", ("frozen_rrr", "trainable_rrr")
    for number, source in ((2, "web search"), (3, "a dense index")):
        place = (f"ERRR, results, Table {number}", f"errr/table{number}")
        for metric in ("EM", "F1"):
            than = "direct answers and both RRR"
            text = f"With {source}, frozen ERRR has a higher {metric} than {than}."
            name = f"frozen-table{number}{_suffix(metric)}"
            yield _claim(place, name, text, frozen, ("no_retrieval", *rrr), metric)
        text = f"With {source}, the distilled optimizer is better than its teacher on each set."
        yield _claim(place, f"trainable-table{number}", text, student, [frozen])
    for metric in ("EM", "F1"):
        place = ("ERRR, results, Table 2", "errr/table2")
        text = f"With web search, frozen ERRR has a higher {metric} than RAG and ReAct."
        others = ("standard_rag", "react")
        yield _claim(place, f"react{_suffix(metric)}", text, frozen, others, metric)
    for metric in ("EM", "F1"):
        place = ("ERRR, results, Table 3", "errr/table3")
        text = (
            f"With a dense index, both RRR have a lower {metric} than direct answers on PopQA and "
            "HotpotQA."
        )
        name, sets = f"rrr-below-direct{_suffix(metric)}", ("popqa", "hotpotqa")
        yield _claim(place, name, text, "no_retrieval", rrr, metric, datasets=sets)
    for metric, word in (("cost_usd", "cheaper"), ("latency_s", "faster")):
        place = ("ERRR, cost and latency, Table 4", "errr/table4")
        text = f"Trainable ERRR is {word} than frozen ERRR, ReAct and Self-RAG."
        yield _claim(place, word, text, student, (frozen, "react", "self_rag"), metric, lower=True)


def _ars() -> Iterator[Claim]:
    baselines = (
        "no_retrieval", "cot_prompting", "flare", "self_rag", "rafe", "cor", "fairrag", "rankrag"
    )  # fmt: skip
    place = ("ARS-RAG, main results, Table 1", "ars/table1")
    for model in ("Gemma2:9B", "Qwen2.5:32B", "Llama3.3:70B"):
        end, of = model.partition(":")[0].lower(), {"generator": model}
        text = f"ARS-RAG has a higher mean of all columns than every baseline ({model})."
        name = f"best-{end}"
        yield _claim(place, name, text, "ars_rag", baselines, MEAN_OF_ALL, rows=of, **AVERAGE)
        text = f"ARS-RAG is better than every baseline in every single column ({model})."
        yield _claim(place, f"every-column-{end}", text, "ars_rag", baselines, MEAN_OF_ALL, rows=of)
    place = ("ARS-RAG, ablation, Table 2", "ars/table2")
    for better, worse, text in (
        ("standard_rag", "no_retrieval", "RAG is better than the model alone."),
        ("rewriter_10", "standard_rag", "Ten rewrites are better than the question."),
        ("rewriter_ranker_top5", "rewriter_10", "The ranker's five best are better than all ten."),
        ("rewriter_bandit", "rewriter_10", "The bandit's number is better than all ten."),
        ("ars_rag", "rewriter_ranker_top5", "ARS-RAG is better than the ranker's five best."),
        ("ars_rag", "rewriter_bandit", "ARS-RAG is better than the bandit without the ranker."),
    ):
        name = f"{better}-over-{worse}".replace("_", "-")
        yield _claim(place, name, text, better, [worse], "accuracy", **AVERAGE)
    place, method = ("ARS-RAG, appendix C, Table 3", "ars/table3"), "ars_rag_penalty"
    for low, high in itertools.pairwise((0, 0.01, 0.02, 0.03, 0.04)):
        text = f"A penalty of {high:g} keeps fewer rewrites than {low:g}."
        mine, others = ({"penalty_lambda": penalty} for penalty in (high, low))
        yield _claim(
            place, f"lambda-{high:g}", text, method, [method], "mean_k",
            mine=mine, others=others, lower=True,
        )  # fmt: skip


def _figure_claims() -> Iterator[FigureClaim]:
    for figure, metric in (("pairs/figure3", "EM"), ("pairs/figure11", "F1")):
        where = f"PAIRS, parametric knowledge, Figure {figure[12:]}"
        for kind, text in (("dq", "answered directly"), ("dq_retrieval", "with retrieval")):
            yield FigureClaim(
                f"pairs/accepted-{kind.replace('_', '-')}-{metric.lower()}",
                f"Questions that the gate accepts have a higher {metric} than the others ({text}).",
                where, figure, At(kind, None), At("non_dq_retrieval", None), shares=True,
            )  # fmt: skip
    scaling = ("DTR, uncertainty scaling, Figure 5", "dtr/figure5")
    largest = "The largest model gains least from retrieval (tested: last points, 7B against 72B)."
    most = "The 32B model gains most from retrieval (tested: last points, 32B against {})."
    for name, text, size, other in (
        ("72b", largest, "7B", "72B"),
        ("32b-over-7b", most.format("7B"), "32B", "7B"),
        ("32b-over-72b", most.format("72B"), "32B", "72B"),
    ):
        yield FigureClaim(
            f"dtr/gain-{name}", text, *scaling, At(size), At(other),
            picture="dtr/figure5-by-size", shares=True,
        )  # fmt: skip
    low = "Where uncertainty is low, retrieval lowers EM."
    grows = "The gain in EM of retrieval grows with uncertainty (tested: last against first point)."
    better = "More accurate retrieval gains more (tested: last points, DPR-AIS against HyDE)."
    first, last = At("Standard RAG", 0), At("Standard RAG")
    for name, text, point, against, lower in (
        ("at-low-uncertainty", low, first, None, True),
        ("grows", grows, last, first, False),
        ("of-better-retrieval", better, At("DPR-AIS"), At("HyDE"), False),
    ):
        yield FigureClaim(
            f"dtr/gain-{name}", text, *scaling, point, against,
            lower=lower, picture="dtr/figure5-by-retrieval", shares=True,
        )  # fmt: skip
    yield FigureClaim(
        "dtr/uncertain-answers",
        "Without retrieval, EM falls as uncertainty grows (tested: first against last point).",
        "DTR, preliminary study, Figure 3", "dtr/figure3",
        At("7B", 0), At("7B"), shares=True,
    )  # fmt: skip
    both, whole = "offline + online", "Both phases end higher than the"
    for number, name, ours, other, text in (
        (4, "offline", both, "offline only", f"{whole} offline phase alone."),
        (4, "online", both, "online only", f"{whole} on-policy phase alone."),
        (4, "kl", both, f"{both} (KL)", "The contrastive loss ends higher than KL divergence."),
        (5, "beta", "R3", "w/o re-rank",
         "With re-ranking, R3's training ends higher than without."),
        (5, "reindexed", "R3", "w/o semi-para",
         "Late search ends higher than periodic re-indexing."),
    ):  # fmt: skip
        where = (f"R3, ablations, Figure {number}", f"r3/figure{number}")
        yield FigureClaim(f"r3/against-{name}", text, *where, At(ours), At(other))
    yield FigureClaim(
        "r3/late-search",
        "Re-ranking 20 passages recovers over 90 % of full parametric search (tested: questions "
        "whose first passage holds an answer, late search against 0.9 times full search).",
        "R3, Appendix H, after SiDR's own paper", "r3/appendix_h",
        At("late", None), At("full", None), factor=0.9, shares=True,
    )  # fmt: skip
    five = At("Top-K", 4)
    for name, ours, theirs, text in (
        ("worst", five, At("Worse-K", 4), "The ranker's five best are better than its five worst."),
        ("random", five, At("Random-K", 4), "The ranker's five best are better than five random."),
        ("all", five, At("Top-K"), "The ranker's five best are better than all ten."),
        ("fixed", At("ARS-RAG", None), five,
         "ARS-RAG is better than any fixed number of rewrites (tested: than the five best)."),
    ):  # fmt: skip
        where = ("ARS-RAG, strategies, Figure 4", "ars/figure4")
        yield FigureClaim(f"ars/strategy-{name}", text, *where, ours, theirs, shares=True)
    test = "test, first and last"
    yield FigureClaim(
        "ars/reward-rises",
        "The weighted reward of test questions rises over the training (tested: last epoch against "
        "the first, paired over seeds).",
        "ARS-RAG, bandit, Figure 5", "ars/figure5",
        At(test), At(test, 0), unit="reward", over_seeds=True,
    )  # fmt: skip
    yield FigureClaim(
        "ars/small-k",
        "The bandit prefers small K (tested: more than half of its choices keep at most half of "
        "the rewrites).",
        "ARS-RAG, bandit, Figure 6", "ars/figure6",
        At("at most half", None), None, shares=True, bound=50.0,
    )  # fmt: skip
    yield FigureClaim(
        "ars/seconds",
        "ARS-RAG needs fewer seconds than the pipeline in which the model judges every passage.",
        "ARS-RAG, time, Figure 8", "ars/figure8",
        At("ARS-RAG", None), At("Original", None), lower=True, unit="seconds",
    )  # fmt: skip


CLAIMS: tuple[Claim | FigureClaim, ...] = (
    *_pairs(), *_dtr(), *_r3(), *_errr(), *_ars(), *_figure_claims()
)  # fmt: skip
