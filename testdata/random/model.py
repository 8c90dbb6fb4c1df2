"""Random models. In: a random.Random. Out: the text of a `.pp` file up to its schedules, and what the
stages of the model need of one another.

A model is one module whose function is a random sequence of layers, cut into stages at random places. A
layer takes values of any earlier stage, so that skips, values of three readers, ids and masks that cross
stages, weights that several stages use and stages that do nothing all come up by themselves. Everything
stays of size one: gates are bounded, sums are scaled."""

WIDTHS = (4, 6, 8, 12, 16)
VOCAB = 11
ACTIVATIONS = ("gelu", "silu", "tanh", "sin", "relu", "gelu_tanh", "softmax")


class Value:
    def __init__(self, name, width, stage):
        self.name, self.width, self.stage, self.used = name, width, stage, False
        self.back = None  # of an "other": how it becomes a plain value again


class Model:
    """The state of the text that is being written: members, statements, and the values there are by kind."""

    def __init__(self, rng):
        self.rng = rng
        self.stages = rng.choice((1, 2, 3, 3, 4, 4, 5, 6, 8, 12))
        self.length = rng.randint(1, 4)
        self.batch = rng.randint(1, 3)
        self.microbatches = rng.choice((1, 2, 3, 3, 4, 5, 8))
        self.members, self.body, self.kinds = [], [], {"real": [], "mask": [], "ids": [], "scalar": [], "row": [],
                                                 "other": []}
        self.linears = []  # (member, n_in, n_out): those that may be used again
        self.raw = []      # (param, n_in, n_out): the same for params without a layer round them
        self.stage, self.names = 0, 0
        self.needs = [set() for _ in range(self.stages)]  # by stage: the earlier stages whose values it reads
        self.tied_table = rng.random() < 0.6
        self.outputs = 0

    def fresh(self, prefix):
        self.names += 1
        return f"{prefix}{self.names}"

    def read(self, value):
        value.used = True
        if value.stage != self.stage:
            self.needs[self.stage].add(value.stage)
        return value.name

    def put(self, kind, text, width=0):
        value = Value(self.fresh(kind[0]), width, self.stage)
        self.body.append(f"    let {value.name} = {text};")
        self.kinds[kind].append(value)
        return value

    def member(self, prefix, text):
        name = self.fresh(prefix)
        self.members.append(f"  {name}: {text};")
        return name

    def parameter(self, shape, start="normal(0.0, 0.4)"):
        name = self.fresh("p")
        self.members.append(f"  param {name}: [{', '.join(map(str, shape))}] = {start};")
        return name

    def pick(self, kind="real", width=None):
        """A value, more often a late or an unused one than any; None where there is none."""
        found = [v for v in self.kinds[kind] if width is None or v.width == width]
        if not found:
            return None
        unused = [v for v in found if not v.used]
        if unused and self.rng.random() < 0.6:
            return self.rng.choice(unused)
        return self.rng.choice(found[-3:] if self.rng.random() < 0.5 else found)


# --- layers: each writes a statement or two, or returns False where it has nothing to work on -----------------


def linear(m):
    x, n_out = m.pick(), m.rng.choice(WIDTHS)
    name = m.member("w", f"linear({x.width}, {n_out}, std = 0.3{m.rng.choice(('', ', with_bias = false'))})")
    m.linears.append((name, x.width, n_out))
    m.put("real", f"{m.rng.choice(ACTIVATIONS)}({name}({m.read(x)}))", n_out)


def linear_again(m):
    """A weight that may have been used in an earlier stage, as it is or transposed."""
    if not m.linears:
        return False
    name, n_in, n_out = m.rng.choice(m.linears)
    forwards = m.rng.random() < 0.5
    x = m.pick(width=n_in if forwards else n_out)
    if x is None:
        return False
    if forwards:
        m.put("real", f"tanh({name}({m.read(x)}))", n_out)
    else:
        m.put("real", f"tanh({m.read(x)} @ {name}.weight)", n_in)


def activation(m):
    x = m.pick()
    m.put("real", f"{m.rng.choice(ACTIVATIONS)}({m.read(x)})", x.width)


def norm(m):
    x = m.pick()
    name = m.member("n", f"{m.rng.choice(('layer_norm', 'rms_norm'))}({x.width})")
    m.put("real", f"{name}({m.read(x)})", x.width)


def dropped(m):
    x = m.pick()
    m.put("real", f"dropout({m.read(x)}, {m.rng.choice(('0.1', '0.5'))})", x.width)


def join(m):
    """Two values of one width, from wherever they are."""
    x = m.pick()
    y = m.pick(width=x.width)
    form = m.rng.choice(("{0} + {1}", "0.5 * ({0} - {1})", "{0} * tanh({1})", "max({0}, {1})", "min({0}, {1})",
                         "{0} / (1.5 + sin({1}))", "{0} + mean({1}, axis = 1, keep = true)"))
    m.put("real", form.format(m.read(x), m.read(y)), x.width)


def attend(m):
    x = m.pick()
    heads = 2 if x.width % 4 == 0 else 1
    kind = m.rng.choice((f"gpt2_attention({x.width}, {heads})", f"llama_attention({x.width}, {heads}, 1)"))
    name = m.member("a", kind)
    m.put("real", f"{m.read(x)} + {name}({m.read(x)})", x.width)


def look(m):
    """Softmax attention written out, over two or three values."""
    x = m.pick()
    y, z = m.pick(width=x.width), m.pick()
    m.put("real", f"softmax({m.read(x)} @ transpose({m.read(y)})) @ {m.read(z)}", z.width)


def slices(m):
    x, y = m.pick(), m.pick()
    if m.rng.random() < 0.5 or x.width + y.width > 20:
        k = m.rng.randint(1, x.width - 1)
        m.put("real", f"concat([{m.read(x)}[.., {k}..{x.width}], {m.read(x)}[.., 0..{k}]])", x.width)
    else:
        m.put("real", f"concat([{m.read(x)}, {m.read(y)}])", x.width + y.width)


def cut_off(m):
    x = m.pick()
    n = m.rng.choice([w for w in WIDTHS if w <= x.width])
    m.put("real", f"{m.read(x)}[.., {x.width - n}..{x.width}]", n)


def turned(m):
    x = m.pick()
    form = m.rng.choice(("transpose(cos(transpose({0})))", "permute(2.0 * permute({0}, [1, 0, 2]), [1, 0, 2])",
                         "pad({0}, axis = -1, before = 1, after = 2)[.., 1..{1}]",
                         "reshape(sin(reshape({0}, [-1])), shape({0}))"))
    m.put("real", form.format(m.read(x), x.width + 1), x.width)


def mask(m):
    x = m.pick()
    m.put("mask", f"{m.read(x)} > {m.rng.choice(('0.0', '0.2'))}", x.width)


def selected(m):
    c = m.pick("mask")
    if c is None:
        return False
    x, y = m.pick(width=c.width), m.pick(width=c.width)
    if x is None:
        return False
    m.put("real", f"select({m.read(c)}, {m.read(x)}, -0.5 * {m.read(y)})", c.width)


def count(m):
    """Ids that follow from what the model computes: they cross stages and have no adjoint."""
    c = m.pick("mask")
    if c is None:
        return False
    m.put("ids", f"sum(cast({m.read(c)}, i32), axis = -1)", c.width + 1)


def look_up(m):
    ids, n = m.pick("ids"), m.rng.choice(WIDTHS)
    if ids is None:
        return False
    name = m.member("e", f"embedding({ids.width}, {n}, std = 0.5)")
    m.put("real", f"{name}({m.read(ids)})", n)


def tokens_again(m):
    """The table of stage 0, in the stage that is open."""
    if m.tied_table:
        x = m.pick(width=m.width)
        m.put("real", f"table(tokens) + 0.5 * {m.read(x)}" if x else "table(tokens)", m.width)
    else:
        return False


def raw(m):
    """A param itself, new or again: in products, through a reshape, by element, a row of it."""
    if not m.raw or m.rng.random() < 0.4:
        n, k = m.pick().width, m.rng.choice(WIDTHS)
        m.raw.append((m.parameter([n, k]), n, k))
    name, n, k = m.rng.choice(m.raw)
    kind = m.rng.choice(("product", "reshaped", "turned", "row", "sum"))
    x = m.pick(width=k if kind in ("turned", "row", "sum") else n)
    if x is None:
        return False
    if kind in ("product", "reshaped"):
        m.put("real", f"tanh({m.read(x)} @ {name if kind == 'product' else f'reshape(reshape({name}, [-1]), [{n}, {k}])'})", k)
    elif kind == "turned":
        m.put("real", f"sin({m.read(x)} @ transpose({name}))", n)
    else:
        m.put("real", f"{m.read(x)} * {f'{name}[{n - 1}]' if kind == 'row' else f'tanh(sum({name}, axis = 0))'}", k)


def other(m):
    """A value in another form, which may cross stages in it."""
    x = m.pick()
    b, t, w = m.batch, m.length, x.width
    form, back = m.rng.choice((("reshape({0}, [-1, %d])" % w, "reshape({0}, [%d, %d, %d])" % (b, t, w)),
                               ("reshape({0}, [%d, 1, -1])" % b, "reshape({0}, [%d, %d, %d])" % (b, t, w)),
                               ("transpose({0})", "transpose({0})"), ("permute({0}, [2, 0, 1])", "permute({0}, [1, 2, 0])"),
                               ("cast({0}, f64)", "cast({0}, real)"), ("{0}[%d]" % (b - 1), "reshape({0}, [1, %d, %d])" % (t, w))))
    m.put("other", form.format(m.read(x)), w).back = back


def other_used(m):
    y = m.pick("other")
    x = y and m.pick(width=y.width)
    if x is None:
        return False
    m.put("real", f"{m.read(x)} + cos({y.back.format(m.read(y))})", x.width)


def row(m):
    """Work on parameters alone, which may then be read in several stages."""
    n = m.rng.choice(WIDTHS)
    if m.rng.random() < 0.5:
        m.put("row", f"exp(0.3 * {m.parameter([n])})", n)
    else:
        k = m.rng.choice(WIDTHS)
        m.put("row", f"tanh(sum({m.parameter([k, n])} @ {m.parameter([n, n])}, axis = 0))", n)


def row_used(m):
    w = m.pick("row")
    x = w and m.pick(width=w.width)
    if x is None:
        return False
    m.put("real", f"{m.read(x)} * {m.read(w)}", x.width)


def scalar(m):
    x = m.pick()
    m.put("scalar", f"mean({m.read(x)} * {m.read(x)})")


def scalar_used(m):
    s, x = m.pick("scalar"), m.pick()
    if s is None:
        return False
    m.put("real", f"{m.read(x)} * tanh({m.read(s)})", x.width)


def output(m):
    x = m.pick(m.rng.choice(("real", "real", "scalar", "ids")))
    if x is None or m.outputs == 4:
        return False
    m.outputs += 1
    kind = m.rng.choice(("mean", "sum", "max", "concat"))
    m.body.append(f"    output seen{m.outputs} = {kind}(cast({m.read(x)}, real));")


LAYERS = ((linear, 8), (linear_again, 4), (activation, 2), (norm, 2), (dropped, 2), (join, 6), (attend, 1), (look, 1), (slices, 2),
          (cut_off, 1), (turned, 2), (mask, 2), (selected, 3), (count, 2), (look_up, 2), (tokens_again, 2), (row, 1), (row_used, 2),
          (scalar, 1), (scalar_used, 1), (output, 1), (raw, 3), (other, 3), (other_used, 4))


def layer(m):
    kinds, weights = zip(*LAYERS)
    while m.rng.choices(kinds, weights)[0](m) is False:
        pass


def loss(m):
    """Returns the statement that ends the function. What nobody has read may add to the loss, from any stage."""
    x = m.pick()
    aux = "".join(f" + 0.1 * {m.read(s)}" for s in m.kinds["scalar"] if m.rng.random() < 0.7)
    if m.rng.random() < 0.6:
        aux += "".join(f" + 0.1 * mean({m.read(v)})" for v in m.kinds["real"] if not v.used)
    kind = m.rng.choice(("square", "entropy", "pair"))
    if kind == "square":
        name = m.member("h", f"linear({x.width}, 1, std = 0.3)")
        return f"    return mean_squared_error(reshape({name}({m.read(x)}), shape(noise)), sin(noise)){aux};"
    tied = m.tied_table and m.pick(width=m.width)
    if tied:
        logits = f"{m.read(tied)} @ transpose(table.weight)"
    else:
        logits = f"{m.member('h', f'linear({x.width}, {VOCAB}, std = 0.3)')}({m.read(x)})"
    if kind == "entropy":
        return f"    return cross_entropy({logits}, tokens){aux};"
    m.body.append(f"    let total, counted = masked_cross_entropy({logits}, select(tokens > 2, tokens, -1));")
    return f"    return total{aux}, counted;"


def body(m):
    m.width = m.rng.choice(WIDTHS)
    m.body.append("    let noise = cast(sample, real);")
    m.members.append(f"  table: embedding({VOCAB}, {m.width}, std = 0.5);" if m.tied_table else f"  lift: linear(1, {m.width}, std = 0.8);")
    m.put("real", "table(tokens)" if m.tied_table else f"lift(reshape(noise, [{m.batch}, {m.length}, 1]))", m.width)
    for s in range(m.stages):
        m.stage = s
        for _ in range(m.rng.choice((0, 1, 1, 2, 2, 3))):
            layer(m)
        if s + 1 < m.stages:
            m.body.append("    stage_end;")
    m.body.append(loss(m))


def train(m, steps):
    rng = m.rng
    optimizer = rng.choice(("sgd(lr = constant(0.05))", "sgd(lr = constant(0.02), momentum = 0.9)", "adamw(lr = constant(3e-3))",
                            "adamw(lr = cosine(peak = 1e-2, warmup = 1, total = steps), weight_decay = 0.1)"))
    lines = [f"model     net = net();", f"batch     microbatch = {m.batch}, microbatches = {m.microbatches};",
             f"data      text = synthetic({m.length}, {VOCAB});", f"data      x = synthetic({m.length});", "loss      net(text, x);",
             "ranks     1;", "schedule  gpipe;", f"optimizer {optimizer};", f"steps     {steps};", f"seed      {rng.randrange(1000)};"]
    if rng.random() < 0.5:
        lines.append("clip      global_norm(0.5);")
    if rng.random() < 0.15:
        lines.append("dtype     f64;")
    return "train {\n" + "".join(f"  {line}\n" for line in lines) + "}\n"


def make(rng, steps=3):
    """Returns (text, Model). The schedules may be added to the text's end."""
    m = Model(rng)
    body(m)
    head = "use nn;\nuse optim;\nuse schedules;\n\nmodule net() {\n" + "\n".join(m.members)
    text = f"{head}\n  fn (tokens: i32[b, t], sample: [b, t]) {{\n" + "\n".join(m.body) + "\n  }\n}\n\n" + train(m, steps)
    return text, m
