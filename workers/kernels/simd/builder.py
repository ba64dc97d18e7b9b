"""The LLVM instructions that loops over vectors need: numba itself writes scalar code only."""

from llvmlite import ir
from numba import types
from numba.core import cgutils

I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
F64 = ir.DoubleType()


class Builder:
    """Wraps numba's builder of one intrinsic; `arguments` are its arrays and scalars."""

    def __init__(self, context, builder, signature, arguments):
        self.ir = builder
        self.arguments = [
            context.make_array(kind)(context, builder, value)
            if isinstance(kind, types.Array)
            else value
            for kind, value in zip(signature.args, arguments, strict=True)
        ]

    def call(self, name, result, *arguments):
        kind = ir.FunctionType(result, [a.type for a in arguments])
        function = cgutils.get_or_insert_function(self.ir.module, kind, name)
        return self.ir.call(function, arguments)

    def load(self, array, index, kind, align):
        return self.ir.load(self._pointer(array, index, kind), align=align)

    def store(self, value, array, index, align):
        self.ir.store(value, self._pointer(array, index, value.type), align=align)

    def _pointer(self, array, index, kind):
        return self.ir.bitcast(self.ir.gep(array.data, [index]), kind.as_pointer())

    def shuffle(self, a, b, lanes):
        mask = ir.Constant(ir.VectorType(I32, len(lanes)), list(lanes))
        return self.ir.shuffle_vector(a, b, mask)

    def spread(self, value, lanes):
        """A vector with the value in every lane."""
        empty = ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined)
        single = self.ir.insert_element(empty, value, I32(0))
        return self.shuffle(single, empty, [0] * lanes)

    def fold(self, vector, combine):
        """All lanes combined, halves first."""
        width = vector.type.count
        while width > 1:
            width //= 2
            low, high = range(width), range(width, 2 * width)
            vector = combine(self.shuffle(vector, vector, low), self.shuffle(vector, vector, high))
        return self.ir.extract_element(vector, I32(0))
