#include "value.hpp"

#include <cstring>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>

#include <nanobind/stl/string.h>

#include <shared_tensor/bytes.hpp>
#include <shared_tensor/client/batch.hpp>
#include <shared_tensor/dlpack.hpp>

namespace shared_tensor::python {

namespace {

thread_local nb::handle convert_tensors;
thread_local bool keep_objects = false;

/// shared_tensor._convert, which knows frameworks and the types of Python's library.
nb::object convert_module() { return nb::module_::import_("shared_tensor._convert"); }

nb::object dlpack_of(nb::handle tensor) {
    const nb::object function = convert_module().attr("dlpack_of");
    return call_python(function, tensor);
}

/// Limits the depth of nested values, as Python does for its own code.
class Deeper {
public:
    Deeper() {
        if (Py_EnterRecursiveCall(" while an argument of a call is read") != 0) throw nb::python_error();
    }
    ~Deeper() { Py_LeaveRecursiveCall(); }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;
};

std::string_view text_of(nb::handle text) {
    Py_ssize_t size = 0;
    const char* const data = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
    if (data == nullptr) throw nb::python_error();
    return {data, static_cast<std::size_t>(size)};
}

void write_integer(ValueWriter writer, nb::handle value) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
    if (overflow == 0) return writer.integer(number);
    const unsigned long long large = PyLong_AsUnsignedLongLong(value.ptr());
    if (PyErr_Occurred() != nullptr) throw nb::python_error();  // OverflowError
    writer.unsigned_integer(large);
}

void write_bytes(ValueWriter writer, nb::handle value) {
    const Buffer buffer(value);
    writer.string(encode_base64({static_cast<const std::byte*>(buffer.data()), buffer.size()}));
}

void write_object(ValueWriter writer, nb::handle dict) {
    writer.object();
    // Another thread may change the dict while code of Python runs for a member, or at any time without a GIL.
#ifdef Py_GIL_DISABLED
    const nb::object own = nb::steal(PyDict_Copy(dict.ptr()));
    if (!own.is_valid()) throw nb::python_error();
    dict = own;
#endif
    PyObject *key = nullptr, *member = nullptr;
    for (Py_ssize_t at = 0; PyDict_Next(dict.ptr(), &at, &key, &member) != 0;) {
        const nb::object kept_key = nb::borrow(key), kept_member = nb::borrow(member);
        if (PyUnicode_Check(key) == 0)
            throw nb::type_error("a dict has keys that are not str: only keys of str can cross");
        write_value(writer.member(text_of(kept_key)), kept_member);
    }
}

template <class Managed>
void delete_unused(PyObject* capsule, const char* name) {
    if (PyCapsule_IsValid(capsule, name) == 0) return;  // a consumer has taken it over
    auto* const managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
    managed->deleter(managed);
}

constexpr const char* kPlain = "dltensor";
constexpr const char* kVersioned = "dltensor_versioned";

/// Takes over the DLPack tensor of a capsule.
TensorRef import_capsule(nb::handle capsule) {
    const auto take = [&](auto* kind, const char* name, const char* used) {
        using Managed = std::remove_pointer_t<decltype(kind)>;
        auto* const managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule.ptr(), name));
        PyCapsule_SetName(capsule.ptr(), used);
        // The producer's deleter may need the GIL, and the last view may end on any thread.
        struct Owner {
            Managed* managed;
            ~Owner() {
                if (managed->deleter == nullptr || !nb::is_alive()) return;
                const WithGil gil;
                managed->deleter(managed);
            }
        };
        auto owner = std::make_shared<Owner>(managed);
        if constexpr (requires { managed->version; }) {
            if (managed->version.major != DLPACK_MAJOR_VERSION)
                throw std::invalid_argument("the tensor's framework exports another version of DLPack than 1");
        }
        return detail::ref_of(managed->dl_tensor, DeviceStream(nullptr), std::move(owner));
    };
    if (PyCapsule_IsValid(capsule.ptr(), kVersioned) != 0)
        return take(static_cast<DLManagedTensorVersioned*>(nullptr), kVersioned, "used_dltensor_versioned");
    if (PyCapsule_IsValid(capsule.ptr(), kPlain) != 0)
        return take(static_cast<DLManagedTensor*>(nullptr), kPlain, "used_dltensor");
    throw nb::type_error("__dlpack__ returned no DLPack tensor");
}

/// The stream of a consumer, as the array API standard numbers it: https://data-apis.org/array-api (__dlpack__).
DeviceStream stream_of(const nb::object& stream, Device device) {
    if (device.kind == Device::Kind::cpu) return std::nullopt;
    if (stream.is_none()) return DeviceStream(nullptr);
    const auto number = nb::cast<std::intptr_t>(stream);
    if (number < 0) return DeviceStream(nullptr);  // -1: the consumer needs no order
    return reinterpret_cast<void*>(number);
}

template <class Managed>
nb::object capsule_of(Managed* managed, const char* name, void (*end)(PyObject*)) {
    PyObject* const capsule = PyCapsule_New(managed, name, end);
    if (capsule == nullptr) {
        managed->deleter(managed);
        throw nb::python_error();
    }
    return nb::steal(capsule);
}

nb::object export_capsule(const Tensor& tensor, const nb::object& stream, const nb::object& max_version) {
    const DeviceStream wanted = stream_of(stream, tensor.ref.device());
    if (!max_version.is_none() && nb::cast<int>(max_version[0]) >= 1) {
        return capsule_of(to_dlpack_versioned(tensor.ref, wanted), kVersioned,
                          [](PyObject* capsule) { delete_unused<DLManagedTensorVersioned>(capsule, kVersioned); });
    }
    return capsule_of(to_dlpack(tensor.ref, wanted), kPlain,
                      [](PyObject* capsule) { delete_unused<DLManagedTensor>(capsule, kPlain); });
}

nb::tuple tuple_of(std::span<const std::int64_t> numbers) {
    nb::list list;
    for (const std::int64_t number : numbers)
        list.append(number);
    return nb::tuple(list);
}

/// In the server: the Python object itself. In a client: its handle.
nb::object object_of(ObjectPointer cell) {
    if (cell->value == nullptr || cell->cpp_type == nullptr || std::strcmp(cell->cpp_type, typeid(PyValue).name()) != 0)
        return nb::cast(Object(std::move(cell)));
    return static_cast<const PyValue*>(cell->value.get())->object();
}

}  // namespace

PyValue::PyValue(nb::object object)
    : object_(object.release().ptr(), [](PyObject* owned) {
          if (!nb::is_alive()) return;  // the interpreter has ended
          const WithGil gil;
          Py_DECREF(owned);
      }) {}

KeepObjects::KeepObjects() : before_(std::exchange(keep_objects, true)) {}
KeepObjects::~KeepObjects() { keep_objects = before_; }

TensorRef tensor_of(nb::handle tensor) {
    if (nb::isinstance<Tensor>(tensor)) return nb::cast<const Tensor&>(tensor).ref;
    return import_capsule(dlpack_of(tensor));
}

ConvertTensors::ConvertTensors(nb::handle convert) : before_(convert_tensors) { convert_tensors = convert; }
ConvertTensors::~ConvertTensors() { convert_tensors = before_; }

void write_value(ValueWriter writer, nb::handle value) {
    PyObject* const object = value.ptr();
    if (object == Py_None) return writer.null();
    if (PyBool_Check(object)) return writer.boolean(object == Py_True);
    if (PyLong_CheckExact(object)) return write_integer(writer, value);
    if (PyFloat_CheckExact(object)) return writer.number(PyFloat_AsDouble(object));
    if (PyUnicode_CheckExact(object)) return writer.string(text_of(value));
    if (nb::isinstance<Tensor>(value)) return writer.tensor(nb::cast<const Tensor&>(value).ref);
    if (nb::isinstance<Object>(value)) return Codec<Object>::write(writer, nb::cast<const Object&>(value));
    if (nb::isinstance<NamedReference>(value)) return write_reference(writer, nb::cast<const NamedReference&>(value));
    if (nb::isinstance<BatchItem<PyValue>>(value))
        return write_reference(writer, nb::cast<const BatchItem<PyValue>&>(value));
    const Deeper deeper;
    if (PyList_Check(object) || PyTuple_Check(object)) {
        const Py_ssize_t size = PySequence_Size(object);
        writer.array(static_cast<std::size_t>(size));
        for (Py_ssize_t i = 0; i < size; ++i) {
            const nb::object item = nb::steal(PySequence_GetItem(object, i));
            if (!item.is_valid()) throw nb::python_error();  // another thread has made the list shorter
            write_value(writer.append(), item);
        }
        return;
    }
    if (PyDict_Check(object)) return write_object(writer, value);
    if (PyBytes_Check(object) || PyByteArray_Check(object) || PyMemoryView_Check(object))
        return write_bytes(writer, value);
    if (PyObject_HasAttrString(object, "__dlpack__") != 0) return writer.tensor(import_capsule(dlpack_of(value)));
    const nb::object plain = convert_module().attr(keep_objects ? "plain_or_kept" : "plain");
    write_value(writer, call_python(plain, value));
}

nb::object read_tensor(const ValueReader& reader) {
    nb::object tensor = nb::cast(Tensor{reader.plain_tensor()});
    const nb::handle convert = convert_tensors;
    return convert.is_valid() && !convert.is_none() ? call_python(convert, tensor) : tensor;
}

nb::object read_value(const ValueReader& reader) {
    switch (reader.kind()) {
        case Kind::null: return nb::none();
        case Kind::boolean: return nb::bool_(reader.boolean());
        case Kind::integer: return nb::int_(reader.integer());
        case Kind::unsigned_integer: return nb::int_(reader.unsigned_integer());
        case Kind::number: return nb::float_(reader.number());
        case Kind::string: {
            const std::string_view text = reader.string();
            return nb::str(text.data(), text.size());
        }
        case Kind::array: {
            nb::list list;
            for (std::size_t i = 0; i < reader.size(); ++i)
                list.append(read_value(reader.element(i)));
            return list;
        }
        case Kind::object: {
            nb::dict dict;
            reader.each_member([&](std::string_view key, const ValueReader& member) {
                dict[nb::str(key.data(), key.size())] = read_value(member);
            });
            return dict;
        }
        case Kind::tensor: return read_tensor(reader);
        case Kind::handle: return object_of(reader.handle());
        case Kind::unknown: break;
    }
    reader.fail("a value that Python can hold");
}

void PyArguments::write(ValueWriter params) const {
    const WithGil gil;
    if (named_.size() > 0) return write_object(params, named_);
    params.array(positional_.size());
    for (nb::handle argument : positional_)
        write_value(params.append(), argument);
}

void define_values(nb::module_& module) {
    nb::class_<Tensor>(module, "Tensor",
                       "A tensor without a framework: a view of memory that it keeps.\n\n"
                       "numpy.from_dlpack, torch.from_dlpack and jax.numpy.from_dlpack take it without a copy.")
        .def_static(
            "from_dlpack", [](nb::handle value) { return Tensor{tensor_of(value)}; }, nb::arg("tensor"),
            "Makes a view of another framework's tensor, without a copy.")
        .def_prop_ro("shape", [](const Tensor& tensor) { return tuple_of(tensor.ref.shape()); })
        .def_prop_ro(
            "strides", [](const Tensor& tensor) { return tuple_of(tensor.ref.strides()); }, "In elements, not bytes.")
        .def_prop_ro(
            "dtype", [](const Tensor& tensor) { return std::string(name_of(tensor.ref.dtype())); },
            "The dtype's name in torch: 'float32'.")
        .def_prop_ro(
            "device", [](const Tensor& tensor) { return detail::text_of(tensor.ref.device()); }, "'cpu' or 'cuda:0'.")
        .def_prop_ro("nbytes", [](const Tensor& tensor) { return tensor.ref.bytes(); })
        .def(
            "view",
            [](const Tensor& tensor, const std::string& dtype) {
                const auto wanted = parse_dtype(dtype);
                if (!wanted || size_of(*wanted) != size_of(tensor.ref.dtype()))
                    throw nb::value_error("view: the dtype must have elements of the same size");
                const auto shape = tensor.ref.shape(), strides = tensor.ref.strides();
                return Tensor{tensor.ref.view(tensor.ref.mutable_data(), *wanted, {shape.begin(), shape.end()},
                                              {strides.begin(), strides.end()})};
            },
            nb::arg("dtype"), "Returns a view of the same memory with elements of another dtype of the same size.")
        .def(
            "__dlpack__",
            [](const Tensor& tensor, const nb::object& stream, const nb::object& max_version, const nb::object&,
               const nb::object&) { return export_capsule(tensor, stream, max_version); },
            nb::kw_only(), nb::arg("stream") = nb::none(), nb::arg("max_version") = nb::none(),
            nb::arg("dl_device") = nb::none(), nb::arg("copy") = nb::none())
        .def("__dlpack_device__",
             [](const Tensor& tensor) {
                 const Device device = tensor.ref.device();
                 return nb::make_tuple(static_cast<int>(device.kind == Device::Kind::cuda ? kDLCUDA : kDLCPU),
                                       device.index);
             })
        .def("__repr__", [](const Tensor& tensor) {
            std::string shape;
            for (const std::int64_t size : tensor.ref.shape())
                shape += (shape.empty() ? "" : ", ") + std::to_string(size);
            return "Tensor([" + shape + "], " + std::string(name_of(tensor.ref.dtype())) + ", '" +
                   detail::text_of(tensor.ref.device()) + "')";
        });

    nb::class_<Object>(module, "Object",
                       "A handle of an object that stays in the server. Pass it to other functions of the server.")
        .def_static(
            "keep",
            [](std::string type, nb::object value) {
                return Object(std::make_shared<const ObjectCell>(ObjectCell{
                    std::move(type), {}, std::make_shared<PyValue>(std::move(value)), typeid(PyValue).name()}));
            },
            nb::arg("type"), nb::arg("value"), "In a server: an object whose handle a caller gets.")
        .def_prop_ro("type", [](const Object& object) { return std::string(object.type()); })
        .def_prop_ro("id", [](const Object& object) { return std::string(object.id()); })
        .def("__repr__", [](const Object& object) {
            return "<Object " + std::string(object.type()) + " " + std::string(object.id()) + ">";
        });

    nb::class_<NamedReference>(module, "NamedReference",
                               "An argument that names a tensor in the server; the tensor itself is not sent.")
        .def_ro("name", &NamedReference::name)
        .def("__repr__", [](const NamedReference& named) { return "ref('" + named.name + "')"; });
    module.def(
        "ref", [](std::string name) { return NamedReference{std::move(name)}; }, nb::arg("name"),
        "Passes a named tensor of the server ('name' or 'set/member') as an argument.");
}

}  // namespace shared_tensor::python
