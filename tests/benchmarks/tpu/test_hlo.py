"""The counter of bytes and operations, on programs small enough to count by hand."""

from benchmarks.tpu.hlo import Cost, arrays, dearest, program_cost

LOOP = """
HloModule m

%sliced (p0: bf16[4,16,128], p1: s32[]) -> bf16[16,128] {
  %p0 = bf16[4,16,128]{2,1,0:T(8,128)(2,1)} parameter(0)
  %p1 = s32[]{:T(128)} parameter(1)
  %zero = s32[]{:T(128)} constant(0)
  %part = bf16[1,16,128]{2,1,0:T(8,128)(2,1)} dynamic-slice(%p0, %p1, %zero, %zero), dynamic_slice_sizes={1,16,128}
  ROOT %flat = bf16[16,128]{1,0:T(8,128)(2,1)} bitcast(%part)
}

%written (p0: bf16[4,16,128], p1: bf16[16,128], p2: s32[]) -> bf16[4,16,128] {
  %p0 = bf16[4,16,128]{2,1,0:T(8,128)(2,1)} parameter(0)
  %p1 = bf16[16,128]{1,0:T(8,128)(2,1)S(1)} parameter(1)
  %new = bf16[1,16,128]{2,1,0:T(8,128)(2,1)} bitcast(%p1)
  %p2 = s32[]{:T(128)} parameter(2)
  %zero = s32[]{:T(128)} constant(0)
  ROOT %updated = bf16[4,16,128]{2,1,0:T(8,128)(2,1)} dynamic-update-slice(%p0, %new, %p2, %zero, %zero)
}

%body (p: (s32[], bf16[4,16,128])) -> (s32[], bf16[4,16,128]) {
  %p = (s32[]{:T(128)}, bf16[4,16,128]{2,1,0:T(8,128)(2,1)}) parameter(0)
  %i = s32[]{:T(128)S(1)} get-tuple-element(%p), index=0
  %stack = bf16[4,16,128]{2,1,0:T(8,128)(2,1)} get-tuple-element(%p), index=1
  %own = bf16[16,128]{1,0:T(8,128)(2,1)S(1)} fusion(%stack, %i), kind=kLoop, calls=%sliced
  %wide = f32[16,16]{1,0:T(8,128)S(1)} convolution(%own, %own), dim_labels=bf_oi->bf
  %one = s32[]{:T(128)S(1)} constant(1)
  %next = s32[]{:T(128)S(1)} add(%i, %one)
  %stacked = bf16[4,16,128]{2,1,0:T(8,128)(2,1)} fusion(%stack, %own, %i), kind=kLoop, calls=%written
  ROOT %out = (s32[]{:T(128)}, bf16[4,16,128]{2,1,0:T(8,128)(2,1)}) tuple(%next, %stacked)
}

%cond (p: (s32[], bf16[4,16,128])) -> pred[] {
  %p = (s32[]{:T(128)}, bf16[4,16,128]{2,1,0:T(8,128)(2,1)}) parameter(0)
  %i = s32[]{:T(128)} get-tuple-element(%p), index=0
  %limit = s32[]{:T(128)} constant(4)
  ROOT %more = pred[]{:T(512)} compare(%i, %limit), direction=LT
}

ENTRY %main (x: bf16[4,16,128]) -> bf16[4,16,128] {
  %x = bf16[4,16,128]{2,1,0:T(8,128)(2,1)} parameter(0)
  %zero = s32[]{:T(128)} constant(0)
  %start = (s32[]{:T(128)}, bf16[4,16,128]{2,1,0:T(8,128)(2,1)}) tuple(%zero, %x)
  %loop = (s32[]{:T(128)}, bf16[4,16,128]{2,1,0:T(8,128)(2,1)}) while(%start), condition=%cond, body=%body
  ROOT %result = bf16[4,16,128]{2,1,0:T(8,128)(2,1)} get-tuple-element(%loop), index=1
}
"""  # noqa: E501


def test_a_loop_counts_slices_and_updates_in_each_round_and_no_scratch_memory() -> None:
    # A round reads a slice of 16 x 128 bfloat16 = 4,096 bytes into scratch memory, and writes
    # 4,096 back. Its product has 16 x 16 results of 128 products each. Four rounds.
    assert program_cost(LOOP) == Cost(4 * 8192, 4 * 2 * 16 * 16 * 128, 0)
    (most, rounds, name), *_ = dearest(LOOP)
    assert (most, rounds, name.split()[0]) in ((4 * 4096, 4, "own"), (4 * 4096, 4, "stacked"))


def test_a_loop_without_a_constant_limit_counts_once() -> None:
    open_ended = LOOP.replace("constant(4)", "get-tuple-element(%p), index=0")
    assert program_cost(open_ended).hbm == 8192


def test_tiles_are_padded_and_other_memory_is_not_hbm() -> None:
    # 7 x 100 float32 in tiles of 8 x 128: 8 x 128 x 4 bytes
    (array,) = arrays("f32[7,100]{1,0:T(8,128)}")
    assert (array.bytes, array.hbm) == (4096, 4096)
    # with the first axis minor: 100 is padded to 104, 7 to 128
    assert arrays("f32[7,100]{0,1:T(8,128)}")[0].bytes == 104 * 128 * 4
    small, scratch = arrays("(pred[]{:T(512)}, bf16[8,128]{1,0:T(8,128)(2,1)S(1)})")
    assert (small.shape, scratch.bytes, scratch.hbm) == ((), 2048, 0)


def test_a_batched_product_as_a_window_counts_its_own_products_only() -> None:
    # as the TPU compiler writes bqe,bek->bqk with b 64, q 7, e 128, k 1024
    window = "window={size=64 stride=63 lhs_dilate=64}"
    text = f"""
ENTRY %main (a: bf16[64,7,128], b: bf16[64,128,1024]) -> f32[64,7,1024] {{
  %a = bf16[64,7,128]{{2,1,0:T(8,128)(2,1)S(1)}} parameter(0)
  %b = bf16[64,128,1024]{{2,1,0:T(8,128)(2,1)}} parameter(1)
  ROOT %c = f32[64,7,1024]{{2,1,0:T(8,128)}} convolution(%a, %b), {window}, dim_labels=0bf_0io->0bf
}}
"""
    cost = program_cost(text)
    assert cost.flops == 2 * 64 * 7 * 128 * 1024
    assert cost.hbm == 64 * 128 * 1024 * 2 + 64 * 8 * 1024 * 4  # 7 queries padded to 8


def test_the_dearest_branch_and_collectives_count() -> None:
    text = """
%small (p: f32[1024]) -> f32[1024] {
  %p = f32[1024]{0:T(1024)} parameter(0)
  ROOT %n = f32[1024]{0:T(1024)} negate(%p)
}

%large (p: f32[1024]) -> f32[1024] {
  %p = f32[1024]{0:T(1024)} parameter(0)
  %m = f32[1024]{0:T(1024)} negate(%p)
  ROOT %n = f32[1024]{0:T(1024)} all-reduce(%m), replica_groups={{0,1}}, to_apply=%add
}

ENTRY %main (x: f32[1024], i: s32[]) -> f32[1024] {
  %x = f32[1024]{0:T(1024)} parameter(0)
  %i = s32[]{:T(128)} parameter(1)
  ROOT %c = f32[1024]{0:T(1024)} conditional(%i, %x, %x), branch_computations={%small, %large}
}
"""
    assert program_cost(text) == Cost(4 * 4096, 0, 4096)


def test_combined_transfers_between_chips_count_all_of_their_results() -> None:
    # two arrays of 1,024 float32 each: read, sent, and written
    array, context = "f32[1024]{0:T(1024)}", "u32[]{:S(2)}"
    text = f"""
ENTRY %main (x: f32[1024], y: f32[1024]) -> (f32[1024], f32[1024]) {{
  %x = {array} parameter(0)
  %y = {array} parameter(1)
  %s = (({array}, {array}), ({array}, {array}), {context}, {context}) collective-permute-start({array} %x, {array} %y), channel_id=1, source_target_pairs={{{{0,1}},{{1,0}}}}
  ROOT %d = ({array}, {array}) collective-permute-done(%s)
}}
"""  # noqa: E501
    assert program_cost(text) == Cost(4 * 4096, 0, 2 * 4096)
    one = text.replace(f"(({array}, {array}), ({array}, {array}),", f"({array}, {array},")
    one = one.replace(f", {array} %y)", ")").replace(
        f"ROOT %d = ({array}, {array})", f"ROOT %d = {array}"
    )
    assert program_cost(one) == Cost(2 * 4096, 0, 4096)


def test_a_slice_behind_a_renaming_fusion_reads_the_slice_only() -> None:
    # as a layer's int8 matrix is taken from the stack: 32 x 128 bytes of four times as many
    text = """
%retiled (p: s8[4,32,128]) -> s8[4,32,128] {
  %p = s8[4,32,128]{2,1,0:T(32,128)(4,1)} parameter(0)
  ROOT %c = s8[4,32,128]{2,1,0:T(8,128)(4,1)} copy(%p)
}

%own (p0: s8[4,32,128], p1: s32[]) -> s8[1,32,128] {
  %p0 = s8[4,32,128]{2,1,0:T(32,128)(4,1)} parameter(0)
  %p1 = s32[]{:T(128)} parameter(1)
  %zero = s32[]{:T(128)} constant(0)
  %view = s8[4,32,128]{2,1,0:T(8,128)(4,1)} fusion(%p0), kind=kLoop, output_to_operand_aliasing={{}: (0, {})}, calls=%retiled
  ROOT %part = s8[1,32,128]{2,1,0:T(8,128)(4,1)S(1)} dynamic-slice(%view, %p1, %zero, %zero), dynamic_slice_sizes={1,32,128}
}

ENTRY %main (x: s8[4,32,128], i: s32[]) -> s8[1,32,128] {
  %x = s8[4,32,128]{2,1,0:T(32,128)(4,1)} parameter(0)
  %i = s32[]{:T(128)S(1)} parameter(1)
  ROOT %f = s8[1,32,128]{2,1,0:T(8,128)(4,1)S(1)} fusion(%x, %i), kind=kLoop, calls=%own
}
"""  # noqa: E501
    assert program_cost(text).hbm == 32 * 128
    alias = "output_to_operand_aliasing={{}: (0, {})}, "
    assert program_cost(text.replace(alias, "")).hbm == 4 * 32 * 128
