#pragma once

// Python objects as arguments and results of calls.

#include <nanobind/nanobind.h>

#include <memory>

#include <shared_tensor/client.hpp>
#include <shared_tensor/object.hpp>
#include <shared_tensor/tensor_ref.hpp>
#include <shared_tensor/value.hpp>

#include "gil.hpp"

namespace shared_tensor::python {

namespace nb = nanobind;

/// A reference to a Python object. Any thread may copy and destroy it, with or without the GIL.
class PyValue {
public:
    PyValue() = default;
    /// The caller holds the GIL.
    explicit PyValue(nb::object object);
    /// The caller holds the GIL.
    nb::object object() const { return nb::borrow(object_.get()); }

private:
    std::shared_ptr<PyObject> object_;
};

/// A tensor without a framework, for Python: it supports DLPack.
struct Tensor {
    TensorRef ref;
};

/// While it lives, tensors that this thread reads are passed to `convert` (None: they stay Tensors). The creator holds
/// the GIL, and keeps `convert` alive.
class ConvertTensors {
public:
    explicit ConvertTensors(nb::handle convert);
    ~ConvertTensors();
    ConvertTensors(const ConvertTensors&) = delete;
    ConvertTensors& operator=(const ConvertTensors&) = delete;

private:
    nb::handle before_;
};

/// A view of a tensor of any framework, or of a Tensor. The caller holds the GIL. Throws nb::python_error.
TensorRef tensor_of(nb::handle tensor);

/// While it lives, an object without a plain form that this thread writes stays in this process, and its handle is
/// written: for results of functions. The creator holds the GIL.
class KeepObjects {
public:
    KeepObjects();
    ~KeepObjects();
    KeepObjects(const KeepObjects&) = delete;
    KeepObjects& operator=(const KeepObjects&) = delete;

private:
    const bool before_;
};

/// Both: the caller holds the GIL. Throw nb::python_error for an error of Python, and InvalidValue or
/// std::invalid_argument for a value that cannot cross.
void write_value(ValueWriter writer, nb::handle value);
nb::object read_value(const ValueReader& reader);
/// Reads a tensor, or nested arrays that are one.
nb::object read_tensor(const ValueReader& reader);

/// A bytes-like object's memory, which must be contiguous. Throws nb::python_error.
class Buffer {
public:
    explicit Buffer(nb::handle object) {
        if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_CONTIG_RO) != 0) throw nb::python_error();
    }
    ~Buffer() { PyBuffer_Release(&view_); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    const void* data() const { return view_.buf; }
    std::size_t size() const { return static_cast<std::size_t>(view_.len); }

private:
    Py_buffer view_;
};

/// The arguments of a call: by position or by name.
class PyArguments final : public CallArguments {
public:
    /// Both must outlive this; one of them is empty.
    PyArguments(const nb::tuple& positional, const nb::dict& named) : positional_(positional), named_(named) {}
    bool empty() const override { return size_ == 0; }
    void write(ValueWriter params) const override;

private:
    const nb::tuple& positional_;
    const nb::dict& named_;
    const std::size_t size_ = positional_.size() + named_.size();
};

/// Adds Tensor, Object and NamedReference to the module.
void define_values(nb::module_& module);

}  // namespace shared_tensor::python

template <>
struct shared_tensor::Codec<shared_tensor::python::PyValue> {
    static python::PyValue read(const ValueReader& reader) {
        const python::WithGil gil;
        return python::PyValue(python::read_value(reader));
    }
    static void write(ValueWriter writer, const python::PyValue& value) {
        const python::WithGil gil;
        python::write_value(writer, value.object());
    }
    static void schema(ValueWriter writer) { writer.object(); }
};
