#pragma once

// Taking the GIL and giving it up. If the interpreter has ended meanwhile, the thread waits until the process ends:
// Python before 3.14 unwinds the stack of such a thread. No C++ function that is noexcept survives that, nor may
// destructors touch objects of Python then.

#include <cxxabi.h>
#include <nanobind/nanobind.h>
#include <unistd.h>

namespace shared_tensor::python {

namespace nb = nanobind;

/// Calls `take`, which takes the GIL and makes no objects that have destructors.
template <class Take>
auto or_wait_for_the_end(Take take) {
    try {
        return take();
    } catch (const abi::__forced_unwind&) {
        while (true)
            ::pause();
    }
}

/// Holds the GIL while it lives. Any thread may use it, with or without the GIL.
class WithGil {
public:
    WithGil() : before_(or_wait_for_the_end(PyGILState_Ensure)) {}
    WithGil(const WithGil&) = delete;
    WithGil& operator=(const WithGil&) = delete;
    ~WithGil() { PyGILState_Release(before_); }

private:
    const PyGILState_STATE before_;
};

/// Gives up the GIL while it lives.
class WithoutGil {
public:
    WithoutGil() : thread_(PyEval_SaveThread()) {}
    WithoutGil(const WithoutGil&) = delete;
    WithoutGil& operator=(const WithoutGil&) = delete;
    ~WithoutGil() {
        or_wait_for_the_end([this] { PyEval_RestoreThread(thread_); });
    }

private:
    PyThreadState* const thread_;
};

/// Calls a function of Python, which may give up the GIL and take it again. The caller holds the GIL. Throws
/// nb::python_error.
template <class... Arguments>
nb::object call_python(nb::handle function, const Arguments&... arguments) {
    PyObject* const result =
        or_wait_for_the_end([&] { return PyObject_CallFunctionObjArgs(function.ptr(), arguments.ptr()..., nullptr); });
    if (result == nullptr) throw nb::python_error();
    return nb::steal(result);
}

}  // namespace shared_tensor::python
