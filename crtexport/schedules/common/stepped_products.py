"""Products of two computed matrices whose sums ONNX Runtime scales in floats: constants give every
possible sum its result (:mod:`crtexport.lowering.numerics.result_steps`)."""

from __future__ import annotations

from crtexport.ir.ops import Activation
from crtexport.ir.scaling import activation_range
from crtexport.kir.builder import cast
from crtexport.kir.language import Expr, Scalar, Var
from crtexport.lowering.numerics.computed_product import Product, Unbiased, product_of
from crtexport.lowering.numerics.result_steps import TwoProducts
from crtexport.lowering.numerics.two_products import by_two_products
from crtexport.lowering.registry import Lowering


def stepped_product_of(lowering: Lowering) -> Product:
    """Returns the product of a node, whose buffers it declares, with the requantization that takes
    the fewest instructions."""
    product = product_of(lowering)
    if not isinstance(product, Unbiased) or product.sums is None:
        return product
    context = lowering.context
    limits = activation_range(Activation.NONE, context.output())
    zero = context.quant(context.output()).zero_point[0]
    found = TwoProducts.of(product.sums, zero, limits)
    return product if found is None else _Stepped(product, found, limits)


class _Stepped:
    """A product with requantization by result steps."""

    def __init__(self, product: Unbiased, constants: TwoProducts, limits: tuple[int, int]) -> None:
        self._product, self._found, self._limits = product, constants, limits
        self.x, self.weights = product.x, product.weights
        self.zero_point, self.weight_zero = product.zero_point, product.weight_zero
        self.sum, self.wraps = product.sum, product.wraps

    def start(self, channel: Expr) -> Var:
        return self._product.start(channel)

    def finish(self, acc: Var, channel: Expr, out_index: Expr) -> None:
        del channel
        b = self._product.b
        value = by_two_products(b, self._found, acc, self._limits)
        b.store(self._product.output, out_index, cast(value, Scalar.I8))
