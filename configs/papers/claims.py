"""Claims of the five papers, tied to cells of their tables or to points of their figures.

The texts are ours; the sources are sections and tables of the papers. Where a paper's own table
contradicts its claim, docs/claims.md shows that beside the verdict.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from jaxrag.reproduction.claims import At, Claim, FigureClaim, Where
from jaxrag.reproduction.printed.comparison import MEAN_OF_ALL

Q7, Q72 = "Qwen2.5-7B-Instruct", "Qwen2.5-72B-Instruct"
LLAMA = "Llama3-8B"


def _rows(*methods: str, **others: Any) -> list[Where]:
    return [{"method": method, **others} for method in methods]


def _suffix(metric: str) -> str:
    return "" if metric == "EM" else f"-{metric.lower()}"


def _pairs() -> Iterator[Claim]:
    ours = {"method": "pairs"}
    earlier = _rows("no_retrieval", "standard_rag", "hyde", "q2d", "cot")
    for metric in ("EM", "F1"):
        yield Claim(
            f"pairs/best-average-{metric.lower()}",
            f"PAIRS has a higher average {metric} than every earlier method without a reranker.",
            "PAIRS, main results, Table 2",
            "pairs/table2",
            ours,
            earlier,
            metric,
            over="average",
        )
    yield Claim(
        "pairs/fewer-retrievals",
        "PAIRS retrieves for about three quarters of the questions (tested: fewer than 80 %).",
        "PAIRS, abstract, Table 2",
        "pairs/table2",
        ours,
        (),
        "retriever_activation_ratio",
        over="average",
        lower=True,
        bound=80.0,
    )
    yield Claim(
        "pairs/webq",
        "On WebQuestions PAIRS is better than DPR-AIS, which always retrieves.",
        "PAIRS, main results, Table 2",
        "pairs/table2",
        ours,
        _rows("dpr_ais"),
        datasets=("webq",),
    )
    for metric in ("EM", "F1"):
        yield Claim(
            f"pairs/dpr-ais-average{_suffix(metric)}",
            f"DPR-AIS has the highest average {metric} of the methods without a reranker.",
            "PAIRS, main results, Table 2",
            "pairs/table2",
            {"method": "dpr_ais"},
            [*earlier, ours],
            metric,
            over="average",
        )
    for name, other, text in (("rerank", "rerank", "reranking alone"),
                              ("rerank-q2d", "q2d", "Q2D without one")):  # fmt: skip
        for metric in ("EM", "F1"):
            yield Claim(
                f"pairs/{name}{_suffix(metric)}",
                f"DPR-AIS with a reranker has a higher average {metric} than {text}.",
                "PAIRS, main results, Table 2",
                "pairs/table2",
                {"method": "dpr_ais_rerank"},
                _rows(other),
                metric,
                over="average",
            )
    yield Claim(
        "pairs/both-paths",
        "DPR-AIS is better than with either search path alone, on every data set.",
        "PAIRS, ablation, Table 3",
        "pairs/table3",
        {"method": "dpr_ais"},
        _rows("dpr_ais_wo_dpr_q", "dpr_ais_wo_dpr_p"),
    )
    yield Claim(
        "pairs/selection",
        "DPR-AIS is better than fixed mixtures of both paths, on every data set.",
        "PAIRS, ablation, Table 3",
        "pairs/table3",
        {"method": "dpr_ais"},
        _rows("dpr_ais_wo_ais_2q1p", "dpr_ais_wo_ais_1q2p"),
    )
    yield Claim(
        "pairs/dynamic",
        "A weight that depends on the angle of question and pseudo-context is better than AIS.",
        "PAIRS, dynamic weighting, Table 4",
        "pairs/table4",
        {"method": "dpr_ais_dynamic"},
        _rows("dpr_ais"),
    )
    yield Claim(
        "pairs/numbers",
        "Retrieval for accepted answers that hold a number raises the average EM.",
        "PAIRS, numeric answers, Table 5",
        "pairs/table5",
        {"method": "pairs_exclude_num"},
        _rows("pairs"),
        over="average",
    )
    yield Claim(
        "pairs/five-passages",
        "With five passages, PAIRS has a higher average EM than Standard RAG.",
        "PAIRS, appendix, Table 7",
        "pairs/table7",
        ours,
        _rows("standard_rag"),
        over="average",
    )


def _dtr() -> Iterator[Claim]:
    thresholds = ("dtr_u0.001", "dtr_u0.005", "dtr_u0.01")
    baselines = ("no_retrieval", "standard_rag", "llm_judge_7b", "llm_judge_72b", "hyde", "q2d",
                 "cot")  # fmt: skip
    for generator, size in ((Q7, "7b"), (Q72, "72b")):
        for method in thresholds:
            yield Claim(
                f"dtr/beats-rag-{size}-{method[4:]}",
                f"DTR (u = {method[5:]}, {size.upper()}) beats Standard RAG in EM on each set.",
                "DTR, main results, Table 2",
                "dtr/table2",
                {"method": method, "generator": generator},
                _rows("standard_rag", generator=generator),
            )
        for metric in ("EM", "F1"):
            yield Claim(
                f"dtr/best-average-{size}{_suffix(metric)}",
                f"DTR (u = 0.001, {size.upper()}) has a higher average {metric} than any baseline.",
                "DTR, main results, Table 2",
                "dtr/table2",
                {"method": "dtr_u0.001", "generator": generator},
                _rows(*baselines, generator=generator),
                metric,
                over="average",
            )
        yield Claim(
            f"dtr/dual-path-{size}",
            f"Without the second search path, DTR ({size.upper()}) is worse on every data set.",
            "DTR, ablation, Table 3",
            "dtr/table3",
            {"method": "dtr_u0.001", "generator": generator},
            _rows("dtr_wo_dpr", generator=generator),
        )
        yield Claim(
            f"dtr/trigger-{size}",
            f"The gate does not cost EM on average ({size.upper()}; tested: better than without).",
            "DTR, ablation, Table 3",
            "dtr/table3",
            {"method": "dtr_u0.001", "generator": generator},
            _rows("dtr_wo_ugt", generator=generator),
            over="average",
        )
    yield Claim(
        "dtr/selection",
        "DTR has a higher average EM than with fixed mixtures of both paths.",
        "DTR, ablation, Table 3",
        "dtr/table3",
        {"method": "dtr_u0.001", "generator": Q7},
        _rows("dtr_wo_ais_1q2p", "dtr_wo_ais_2q1p", generator=Q7),
        over="average",
    )
    yield Claim(
        "dtr/fewer-retrievals",
        "A larger threshold retrieves for fewer questions.",
        "DTR, main results, Table 2",
        "dtr/table2",
        {"method": "dtr_u0.01", "generator": Q7},
        _rows("dtr_u0.001", "dtr_u0.005", generator=Q7),
        "trigger_ratio",
        lower=True,
    )
    for retriever in ("bge-large-en-v1.5", "e5"):
        yield Claim(
            f"dtr/recall-{retriever.partition('-')[0]}",
            f"Dual-path retrieval finds more gold passages than the baselines ({retriever}).",
            "DTR, retrieval accuracy, Table 4",
            "dtr/table4",
            {"method": "dpr_ais", "retriever": retriever},
            _rows("standard_rag", "hyde", "q2d", "cot", retriever=retriever),
            "recall@3",
        )
        yield Claim(
            f"dtr/expansion-{retriever.partition('-')[0]}",
            f"Expanded queries find fewer gold passages than the question ({retriever}).",
            "DTR, retrieval accuracy, Table 4",
            "dtr/table4",
            {"method": "standard_rag", "retriever": retriever},
            _rows("hyde", "q2d", "cot", retriever=retriever),
            "recall@3",
        )
    for table, text in (("dtr/table6", "five passages"), ("dtr/table7", "e5 as the retriever")):
        for metric in ("EM", "F1"):
            yield Claim(
                f"dtr/{table[-6:]}-average{_suffix(metric)}",
                f"With {text}, DTR has a higher average {metric} than Standard RAG.",
                f"DTR, appendix F, Table {table[-1]}",
                table,
                {"method": "dtr_u0.001"},
                _rows("standard_rag"),
                metric,
                over="average",
            )


def _r3() -> Iterator[Claim]:
    start = {"generator": LLAMA, "block": "standard_rag"}
    adaptive = ("adaptive_rag", "ircot", "dragin", "seakr", "flare")
    for passages in (1, 10):
        for name, others, text in (
            ("gain", _rows("standard_rag_sidr", **start, passages=passages),
             "the SiDR it starts from on each set"),
            ("adaptive", _rows(*adaptive, passages=passages),
             "adaptive methods on each set they have"),
        ):  # fmt: skip
            yield Claim(
                f"r3/{name}-{passages}",
                f"R3 is better than {text} ({passages} in context).",
                "R3, main results, Table 1",
                "r3/table1",
                {"method": "r3", "generator": LLAMA, "passages": passages},
                others,
                "accuracy",
            )
    yield Claim(
        "r3/best-retriever",
        "R3 is better on average than Contriever and E5 as they come.",
        "R3, main results, Table 1",
        "r3/table1",
        {"method": "r3", "generator": LLAMA, "passages": 1},
        _rows("standard_rag_contriever_ms", "standard_rag_e5", generator=LLAMA, passages=1),
        "accuracy",
        over="average",
    )
    yield from _r3_against_tuned_models()
    for generator in ("Llama3-8B-Instruct", "Phi-3-mini-4k-instruct", "Mistral-7B-Instruct-v0.3"):
        yield Claim(
            f"r3/transfer-{generator.partition('-')[0].lower()}",
            f"A retriever tuned with Llama3-8B improves {generator}, too, on average.",
            "R3, transfer, Table 1",
            "r3/table1",
            {"method": "r3", "generator": generator, "passages": 1},
            _rows("standard_rag_sidr", generator=generator, passages=1, block="transfer"),
            "accuracy",
            over="average",
        )
    yield Claim(
        "r3/upper-bound",
        "Some retriever finds a passage that leads to the answer far more often than the best one.",
        "R3, preliminary study, Table 4",
        "r3/table4",
        {"method": "any_retriever_upper_bound"},
        _rows("sidr_nq", "e5", "contriever_ms"),
        "accuracy",
        datasets=("nq",),
    )
    yield Claim(
        "r3/sampling",
        "The most relevant negative with a random positive is the best way to draw a pair.",
        "R3, appendix E, Table 5",
        "r3/table5",
        {"method": "r3_sampling_a"},
        _rows("r3_sampling_b", "r3_sampling_c"),
        "accuracy",
    )
    for passages in (1, 10):
        yield Claim(
            f"r3/answer-probability-{passages}",
            f"Passages ranked by the answer's probability are better ({passages} in context).",
            "R3, appendix, Table 6",
            "r3/table6",
            {"method": "sidr_ms_rank_by_answer_probability", "passages": passages},
            _rows("sidr_ms_rank_by_relevance", passages=passages),
            "accuracy",
        )
    yield Claim(
        "r3/ir-may-fall",
        "Tuning for RAG may lower the share of first passages that hold the answer.",
        "R3, main results, Table 8",
        "r3/table8",
        {"method": "r3_from_sidr_nq"},
        _rows("standard_rag_sidr_nq"),
        "ir_accuracy@1",
        lower=True,
    )
    yield Claim(
        "r3/progress",
        "Accuracy grows along the on-policy phase (tested: end against start).",
        "R3, transfer, Table 7",
        "r3/table7",
        {"method": "r3", "generator": LLAMA, "progress_percent": 100},
        _rows("r3", generator=LLAMA, progress_percent=0),
        "accuracy",
    )


def _r3_against_tuned_models() -> Iterator[Claim]:
    """Of models of 8B parameters, with which the paper compares R3."""
    tuned = ("self_rag_llama3_8b_sidr", "self_rag_llama3_8b")
    for passages, methods in ((1, tuned[:1]), (10, tuned)):
        yield Claim(
            f"r3/self-rag-{passages}",
            "A tuned retriever is as good as a model tuned for RAG, or better, on some sets "
            "(tested: better than Self-RAG from Llama3-8B on each set it has, "
            f"{passages} in context).",
            "R3, main results, Table 1",
            "r3/table1",
            {"method": "r3", "generator": LLAMA, "passages": passages},
            _rows(*methods, block="improving_llm", passages=passages),
            "accuracy",
        )
    yield Claim(
        "r3/instruct-pubhealth",
        "On PubHealth a tuned retriever gains more than an instruction-tuned model (tested: R3 "
        "against Llama3-8B-Instruct with SiDR, 1 in context).",
        "R3, main results, Table 1",
        "r3/table1",
        {"method": "r3", "generator": LLAMA, "passages": 1},
        _rows("standard_rag_sidr", generator=f"{LLAMA}-Instruct", passages=1,
              block="improving_llm"),
        "accuracy",
        datasets=("pubhealth",),
    )  # fmt: skip


def _errr() -> Iterator[Claim]:
    for table, text in (("errr/table2", "web search"), ("errr/table3", "a dense index")):
        for metric in ("EM", "F1"):
            yield Claim(
                f"errr/frozen-{table[-6:]}{_suffix(metric)}",
                f"With {text}, frozen ERRR has a higher {metric} than direct answers and both RRR.",
                f"ERRR, results, Table {table[-1]}",
                table,
                {"method": "frozen_errr"},
                _rows("no_retrieval", "frozen_rrr", "trainable_rrr"),
                metric,
            )
        yield Claim(
            f"errr/trainable-{table[-6:]}",
            f"With {text}, the distilled optimizer is better than its teacher on each set.",
            f"ERRR, results, Table {table[-1]}",
            table,
            {"method": "trainable_errr"},
            _rows("frozen_errr"),
        )
    for metric in ("EM", "F1"):
        yield Claim(
            f"errr/react{_suffix(metric)}",
            f"With web search, frozen ERRR has a higher {metric} than RAG and ReAct.",
            "ERRR, results, Table 2",
            "errr/table2",
            {"method": "frozen_errr"},
            _rows("standard_rag", "react"),
            metric,
        )
    for metric in ("EM", "F1"):
        yield Claim(
            f"errr/rrr-below-direct{_suffix(metric)}",
            f"With a dense index, both RRR have a lower {metric} than direct answers on PopQA and "
            "HotpotQA.",
            "ERRR, results, Table 3",
            "errr/table3",
            {"method": "no_retrieval"},
            _rows("frozen_rrr", "trainable_rrr"),
            metric,
            datasets=("popqa", "hotpotqa"),
        )
    for metric, text in (("cost_usd", "cheaper"), ("latency_s", "faster")):
        yield Claim(
            f"errr/{text}",
            f"Trainable ERRR is {text} than frozen ERRR, ReAct and Self-RAG.",
            "ERRR, cost and latency, Table 4",
            "errr/table4",
            {"method": "trainable_errr"},
            _rows("frozen_errr", "react", "self_rag"),
            metric,
            lower=True,
        )


def _ars() -> Iterator[Claim]:
    baselines = ("no_retrieval", "cot_prompting", "flare", "self_rag", "rafe", "cor", "fairrag",
                 "rankrag")  # fmt: skip
    for generator in ("Gemma2:9B", "Qwen2.5:32B", "Llama3.3:70B"):
        yield Claim(
            f"ars/best-{generator.partition(':')[0].lower()}",
            f"ARS-RAG has a higher mean of all columns than every baseline ({generator}).",
            "ARS-RAG, main results, Table 1",
            "ars/table1",
            {"method": "ars_rag", "generator": generator},
            _rows(*baselines, generator=generator),
            MEAN_OF_ALL,
            over="average",
        )
        yield Claim(
            f"ars/every-column-{generator.partition(':')[0].lower()}",
            f"ARS-RAG is better than every baseline in every single column ({generator}).",
            "ARS-RAG, main results, Table 1",
            "ars/table1",
            {"method": "ars_rag", "generator": generator},
            _rows(*baselines, generator=generator),
            MEAN_OF_ALL,
        )
    for better, worse, text in (
        ("standard_rag", "no_retrieval", "RAG is better than the model alone."),
        ("rewriter_10", "standard_rag", "Ten rewrites are better than the question."),
        ("rewriter_ranker_top5", "rewriter_10", "The ranker's five best are better than all ten."),
        ("rewriter_bandit", "rewriter_10", "The bandit's number is better than all ten."),
        ("ars_rag", "rewriter_ranker_top5", "ARS-RAG is better than the ranker's five best."),
        ("ars_rag", "rewriter_bandit", "ARS-RAG is better than the bandit without the ranker."),
    ):
        yield Claim(
            f"ars/{better.replace('_', '-')}-over-{worse.replace('_', '-')}",
            text,
            "ARS-RAG, ablation, Table 2",
            "ars/table2",
            {"method": better},
            _rows(worse),
            "accuracy",
            over="average",
        )
    penalties = (0, 0.01, 0.02, 0.03, 0.04)
    for low, high in itertools.pairwise(penalties):
        yield Claim(
            f"ars/lambda-{high:g}",
            f"A penalty of {high:g} keeps fewer rewrites than {low:g}.",
            "ARS-RAG, appendix C, Table 3",
            "ars/table3",
            {"method": "ars_rag_penalty", "penalty_lambda": high},
            _rows("ars_rag_penalty", penalty_lambda=low),
            "mean_k",
            lower=True,
        )


def _of_figures() -> Iterator[FigureClaim]:
    for figure, metric in (("pairs/figure3", "EM"), ("pairs/figure11", "F1")):
        where = f"PAIRS, parametric knowledge, Figure {figure[12:]}"
        for kind, text in (("dq", "answered directly"), ("dq_retrieval", "with retrieval")):
            yield FigureClaim(
                f"pairs/accepted-{kind.replace('_', '-')}-{metric.lower()}",
                f"Questions that the gate accepts have a higher {metric} than the others ({text}).",
                where,
                figure,
                At(kind, "only"),
                At("non_dq_retrieval", "only"),
                shares=True,
            )
    by_size, by_retrieval = "dtr/figure5-by-size", "dtr/figure5-by-retrieval"
    scaling = ("DTR, uncertainty scaling, Figure 5", "dtr/figure5")
    yield FigureClaim(
        "dtr/gain-at-low-uncertainty",
        "Where uncertainty is low, retrieval lowers EM.",
        *scaling,
        At("Standard RAG", "first"),
        None,
        lower=True,
        picture=by_retrieval,
        shares=True,
    )
    yield FigureClaim(
        "dtr/gain-grows",
        "The gain in EM of retrieval grows with uncertainty (tested: last against first point).",
        *scaling,
        At("Standard RAG", "last"),
        At("Standard RAG", "first"),
        picture=by_retrieval,
        shares=True,
    )
    yield FigureClaim(
        "dtr/gain-72b",
        "The largest model gains least from retrieval (tested: last points, 7B against 72B).",
        *scaling,
        At("7B"),
        At("72B"),
        picture=by_size,
        shares=True,
    )
    for size in ("7B", "72B"):
        yield FigureClaim(
            f"dtr/gain-32b-over-{size.lower()}",
            f"The 32B model gains most from retrieval (tested: last points, 32B against {size}).",
            *scaling,
            At("32B"),
            At(size),
            picture=by_size,
            shares=True,
        )
    yield FigureClaim(
        "dtr/gain-of-better-retrieval",
        "More accurate retrieval gains more (tested: last points, DPR-AIS against HyDE).",
        *scaling,
        At("DPR-AIS"),
        At("HyDE"),
        picture=by_retrieval,
        shares=True,
    )
    yield FigureClaim(
        "dtr/uncertain-answers",
        "Without retrieval, EM falls as uncertainty grows (tested: first against last point).",
        "DTR, preliminary study, Figure 3",
        "dtr/figure3",
        At("7B", "first"),
        At("7B", "last"),
        shares=True,
    )
    whole = At("offline + online")
    for name, other, text in (
        ("offline", "offline only", "Both phases end higher than the offline phase alone."),
        ("online", "online only", "Both phases end higher than the on-policy phase alone."),
        ("kl", "offline + online (KL)", "The contrastive loss ends higher than KL divergence."),
    ):
        source = "R3, ablations, Figure 4"
        yield FigureClaim(f"r3/against-{name}", text, source, "r3/figure4", whole, At(other))
    for name, other, text in (
        ("beta", "w/o re-rank", "With re-ranking, R3's training ends higher than without."),
        ("reindexed", "w/o semi-para", "Late search ends higher than periodic re-indexing."),
    ):
        source = "R3, ablations, Figure 5"
        yield FigureClaim(f"r3/against-{name}", text, source, "r3/figure5", At("R3"), At(other))
    yield FigureClaim(
        "r3/late-search",
        "Re-ranking 20 passages recovers over 90 % of full parametric search (tested: questions "
        "whose first passage holds an answer, late search against 0.9 times full search).",
        "R3, Appendix H, after SiDR's own paper",
        "r3/appendix_h",
        At("late", "only"),
        At("full", "only"),
        factor=0.9,
        shares=True,
    )
    five = At("Top-K", 5)
    for name, ours, theirs, text in (
        ("worst", five, At("Worse-K", 5), "The ranker's five best are better than its five worst."),
        ("random", five, At("Random-K", 5), "The ranker's five best are better than five random."),
        ("all", five, At("Top-K"), "The ranker's five best are better than all ten."),
        ("fixed", At("ARS-RAG", "only"), five,
         "ARS-RAG is better than any fixed number of rewrites (tested: than the five best)."),
    ):  # fmt: skip
        source = "ARS-RAG, strategies, Figure 4"
        yield FigureClaim(
            f"ars/strategy-{name}", text, source, "ars/figure4", ours, theirs, shares=True
        )
    test = "test, first and last"
    yield FigureClaim(
        "ars/reward-rises",
        "The weighted reward of test questions rises over the training (tested: last epoch against "
        "the first, paired over seeds).",
        "ARS-RAG, bandit, Figure 5",
        "ars/figure5",
        At(test, "last"),
        At(test, "first"),
        unit="reward",
        over_seeds=True,
    )
    yield FigureClaim(
        "ars/small-k",
        "The bandit prefers small K (tested: more than half of its choices keep at most half of "
        "the rewrites).",
        "ARS-RAG, bandit, Figure 6",
        "ars/figure6",
        At("at most half", "only"),
        None,
        shares=True,
        bound=50.0,
    )
    yield FigureClaim(
        "ars/seconds",
        "ARS-RAG needs fewer seconds than the pipeline in which the model judges every passage.",
        "ARS-RAG, time, Figure 8",
        "ars/figure8",
        At("ARS-RAG", "only"),
        At("Original", "only"),
        lower=True,
        unit="seconds",
    )


CLAIMS: tuple[Claim | FigureClaim, ...] = (
    *_pairs(), *_dtr(), *_r3(), *_errr(), *_ars(), *_of_figures()
)  # fmt: skip
