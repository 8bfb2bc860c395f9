#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <shared_tensor/client.hpp>
#include <shared_tensor/tensors.hpp>
#include <string>
#include <utility>
#include <vector>

#include "bytes.hpp"
#include "groups.hpp"
#include "process.hpp"
#include "servers.hpp"

// Measures how long it takes to publish weights of 1 GiB in 64 tensors, in several ways. What the copies or mappings of
// each way cost by themselves is measured by turns with it.

namespace bench {

namespace {

using shared_tensor::NamedTensors;
using shared_tensor::TensorForm;
using Set = std::map<std::string, shared_tensor::TensorRef>;

constexpr std::size_t kSize = std::size_t{1} << 30;
constexpr int kMembers = 64;

constexpr const char* kBare = "munmap and seals of the same pages, plain C";
constexpr const char* kBorn = "shared_tensor, tensors of empty_set()";
constexpr const char* kCopy = "memcpy into fresh memory";
constexpr const char* kCopied = "shared_tensor, tensors in ordinary memory, a new name";
constexpr const char* kAgain = "shared_tensor, the same, a further version";
constexpr const char* kChanged = "shared_tensor, one tensor of the 64 changed (base)";
constexpr const char* kCat = "cat of a file into /dev/shm";
constexpr const char* kFile = "shared_tensor, a safetensors file";

/// Prepares, and returns the milliseconds of what is measured.
using Measured = std::function<double()>;

template <class Work>
double millis_of(Work work) {
    const auto start = Clock::now();
    work();
    return micros_since(start) / 1e3;
}

/// The pages are as those of empty_set(): allocated, mapped and written before.
double unmap_and_seal() {
    const int memory = ::memfd_create("bench", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    require(memory >= 0 && ::ftruncate(memory, kSize) == 0 && ::fallocate(memory, 0, 0, kSize) == 0, "memfd");
    void* const data = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, memory, 0);
    require(data != MAP_FAILED, "mmap");
    std::memset(data, 1, kSize);
    const double millis = millis_of([&] {
        ::munmap(data, kSize);
        require(::fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) == 0, "seal");
    });
    ::close(memory);
    return millis;
}

double copy(const std::vector<std::uint8_t>& bytes) {
    void* const fresh = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(fresh != MAP_FAILED, "mmap");
    const double millis = millis_of([&] { std::memcpy(fresh, bytes.data(), kSize); });
    ::munmap(fresh, kSize);
    return millis;
}

double cat(const std::string& file) {
    const std::string to = "/dev/shm/shared_tensor_bench_" + std::to_string(::getpid());
    const std::string command = "cat '" + file + "' > '" + to + "'";
    const double millis = millis_of([&] { require(std::system(command.c_str()) == 0, "cat"); });  // NOLINT(*-env33-c)
    ::unlink(to.c_str());
    return millis;
}

std::map<std::string, TensorForm> forms() {
    constexpr std::int64_t kCount = kSize / kMembers;
    std::map<std::string, TensorForm> all;
    for (int i = 0; i < kMembers; ++i)
        all["layer." + std::to_string(i)] = {shared_tensor::DType::uint8, {kCount}};
    return all;
}

/// Tensors in the memory of `bytes`, which must outlive them.
Set in_ordinary_memory(std::vector<std::uint8_t>& bytes) {
    Set set;
    std::size_t offset = 0;
    for (const auto& [name, form] : forms()) {
        auto* const data = reinterpret_cast<std::byte*>(bytes.data()) + offset;
        set.emplace(name, shared_tensor::TensorRef(data, form.dtype, form.shape));
        offset += kSize / kMembers;
    }
    return set;
}

std::vector<std::pair<std::string, Measured>> rows(const NamedTensors& names, std::vector<std::uint8_t>& bytes,
                                                   const std::string& file) {
    const auto set = std::make_shared<const Set>(in_ordinary_memory(bytes));
    const auto put = [&names](const std::string& name, const Set& tensors,
                              const shared_tensor::PutOptions& options = {}) {
        return millis_of([&] { names.put(name, tensors, options); });
    };
    const auto born = [=, &names] {
        const Set fresh = names.empty_set(forms());
        for (const auto& [name, tensor] : fresh)
            std::memset(tensor.mutable_data(), 1, tensor.bytes());
        const double millis = put("born", fresh);
        names.remove("born");
        return millis;
    };
    const auto copied = [=, &names] {
        const double millis = put("copied", *set);
        names.remove("copied");
        return millis;
    };
    const auto changed = [=, &names] {
        const std::uint64_t version = names.put("changed", *set).version;
        const double millis = put("changed", {*set->begin()}, {.base = version});
        names.remove("changed");
        return millis;
    };
    const auto from_file = [=, &names] {
        const double millis = millis_of([&] { names.put_file("file", file); });
        names.remove("file");
        return millis;
    };
    names.put("again", *set);
    return {{kBare, unmap_and_seal},
            {kBorn, born},
            {kCopy, [&bytes] { return copy(bytes); }},
            {kCopied, copied},
            {kAgain, [=] { return put("again", *set); }},
            {kChanged, changed},
            {kCat, [=] { return cat(file); }},
            {kFile, from_file}};
}

}  // namespace

void publish(Report& report, const Settings& settings) {
    report.group("weights of 1 GiB in 64 tensors, published");
    const ServerProcess server({"ours", "10", settings.folder + "/publish"});
    const NamedTensors names{shared_tensor::Client(server.address())};
    std::vector<std::uint8_t> bytes = filled(kSize);
    const std::string file = settings.folder + "/weights.safetensors";
    names.put("weights", in_ordinary_memory(bytes));
    names.get("weights").save(file);
    names.remove("weights");
    std::map<std::string, Sample> samples;
    const auto all = rows(names, bytes, file);
    for (int round = -1; round < 7; ++round) {
        for (const auto& [name, measured] : all) {
            const double millis = measured();
            if (round >= 0) samples[name].values.push_back(millis);
        }
    }
    std::filesystem::remove(file);
    for (const auto& [name, measured] : all)
        report.row(name, {{"ms", samples.at(name).median()}});
    const auto beside = [&](const char* ours, const char* bare, double limit) {
        const double ratio = samples.at(ours).median() / samples.at(bare).median();
        report.target({std::string(ours) + " / " + bare, ratio, Target::Bound::at_most, limit});
    };
    beside(kBorn, kBare, 1.2);
    beside(kCopied, kCopy, 1.3);
    beside(kFile, kCat, 1.2);
}

}  // namespace bench
