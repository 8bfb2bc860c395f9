#include <ATen/core/Tensor.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <shared_tensor/client.hpp>
#include <shared_tensor/torch.hpp>

#include "bytes.hpp"
#include "groups.hpp"
#include "process.hpp"
#include "python_peer.hpp"
#include "servers.hpp"
#include "sockets.hpp"

// One process holds a tensor. Measures the time until another process has read its first element, and until it has
// summed all elements. Everything is warm: peers that can keep a mapping have kept it. For all peers, the release of
// the tensor is not in that time; for shared_tensor, separate rows include it: the mean of a row of calls.

namespace bench {

namespace {

constexpr const char* kMapping = "kept mapping, plain C";
constexpr const char* kSmall = "shared_tensor, small call";
constexpr const char* kHeld = "shared_tensor, held tensor";
constexpr const char* kHeldFirst = "shared_tensor, held tensor, the first after other calls";
constexpr const char* kSmallUnix = "shared_tensor, small call, Unix socket";
constexpr const char* kHeldUnix = "shared_tensor, held tensor, Unix socket";
constexpr const char* kRound = "shared_tensor, held tensor and its release, back to back";
constexpr const char* kTorch = "torch.multiprocessing queue";
constexpr const char* kRay = "Ray, object store";
constexpr const char* kCopy = "memcpy, warm";
constexpr const char* kFresh = "shared_tensor, fresh result";
constexpr const char* kBorn = "shared_tensor, fresh result born in shared memory";

/// How much of the tensor is read.
enum class Read { first, all };

std::int64_t read(const std::int64_t* values, std::size_t count, Read what) {
    if (what == Read::first) return values[0];
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < count; ++i)
        sum += values[i];
    return sum;
}

/// The servers fill tensors with ones.
std::int64_t expected(std::size_t count, Read what) {
    return what == Read::first ? 1 : static_cast<std::int64_t>(count);
}

/// Makes one hand-over and returns its microseconds.
using Measured = std::function<double(Read)>;

template <class Work>
Measured timed(std::size_t size, Work work) {
    return [size, work = std::move(work)](Read what) {
        const std::size_t count = size / sizeof(std::int64_t);
        const auto start = Clock::now();
        const std::int64_t seen = work(what, count);
        const double micros = micros_since(start);
        require(seen == expected(count, what), "a wrong tensor");
        return micros;
    };
}

/// The server holds a memfd and answers each question with the offset of the tensor in it.
Measured kept_mapping(const ServerProcess& server, std::size_t size) {
    const auto socket = std::make_shared<Socket>(connect_unix(server.address()));
    const int descriptor = receive_descriptor(socket->fd());
    void* mapped = ::mmap(nullptr, size, PROT_READ, MAP_SHARED | MAP_POPULATE, descriptor, 0);
    require(mapped != MAP_FAILED, "mmap");
    ::close(descriptor);
    return timed(size, [socket, mapped](Read what, std::size_t count) {
        std::uint64_t question = 1, offset = 0;
        write_all(socket->fd(), &question, sizeof question);
        read_all(socket->fd(), &offset, sizeof offset);
        return read(reinterpret_cast<const std::int64_t*>(static_cast<const char*>(mapped) + offset), count, what);
    });
}

using ClientPointer = std::shared_ptr<shared_tensor::Client>;

Measured ours(const ClientPointer& client, const char* function, std::size_t size) {
    auto last = std::make_shared<at::Tensor>();
    Measured measured = timed(size, [=](Read what, std::size_t count) {
        *last = client->call<at::Tensor>(function, static_cast<std::int64_t>(size));
        return read(last->const_data_ptr<std::int64_t>(), count, what);
    });
    return [=](Read what) {
        const double micros = measured(what);
        *last = at::Tensor();
        return micros;
    };
}

/// Includes the release of each tensor: the mean of several calls in a row.
Measured rounds_of_ours(const ClientPointer& client, std::size_t size) {
    const Measured one = ours(client, "held", size);
    return [=](Read what) {
        constexpr int kRow = 4;
        const auto start = Clock::now();
        for (int i = 0; i < kRow; ++i)
            one(what);
        return micros_since(start) / kRow;
    };
}

/// A call to the same server that returns a number: the minimum cost of a call.
Measured small_call(const ClientPointer& client) {
    return [=](Read) {
        const auto start = Clock::now();
        require(client->call<std::int64_t>("number", 1) == 1, "a wrong number");
        return micros_since(start);
    };
}

struct Row {
    std::string name;
    Measured measured;
    Measured before = measured;  ///< runs right before, unmeasured: wakes sleeping threads
};
using Rows = std::vector<Row>;

/// Measures all rows once in each round, so that ratios compare the same moments.
std::map<std::string, Sample> measure(const Rows& rows, Read what, int rounds) {
    std::map<std::string, Sample> samples;
    for (int round = -3; round < rounds; ++round) {
        for (const auto& [name, one, before] : rows) {
            if (what == Read::first) before(what);
            const double micros = one(what);
            if (round >= 0) samples[name].values.push_back(micros);
        }
    }
    return samples;
}

std::string words(std::size_t size) {
    return size < (1 << 20) ? std::to_string(size >> 10) + " KiB" : std::to_string(size >> 20) + " MiB";
}

void print(Report& report, const Rows& rows, const std::map<std::string, Sample>& samples) {
    for (const Row& row : rows)
        report.latency_row(row.name, samples.at(row.name));
}

struct Clients {
    explicit Clients(const std::string& folder) : path(folder + "/memory"), server({"ours", "10", path}) {
        tcp = std::make_shared<shared_tensor::Client>(server.address());
        unix_ = std::make_shared<shared_tensor::Client>("unix:" + path);
    }
    std::string path;
    ServerProcess server;
    std::shared_ptr<shared_tensor::Client> tcp, unix_;
};

void held(Report& report, const Settings& settings, const Clients& clients, std::size_t size) {
    const ServerProcess mapping({"mapping", settings.folder + "/mapping" + std::to_string(size), std::to_string(size)});
    const Measured small = small_call(clients.tcp), small_unix = small_call(clients.unix_);
    const Measured one = ours(clients.tcp, "held", size), one_unix = ours(clients.unix_, "held", size);
    // Small call and tensor both run after the same calls of both kinds: so the server's threads are equally awake, and
    // the instructions of both are in the caches. The row kHeldFirst shows the cost of a tensor after small calls only.
    const auto both = [](const Measured& call, const Measured& tensor) -> Measured {
        return [=](Read what) { return call(what) + tensor(what) + call(what); };
    };
    Rows rows{{kMapping, kept_mapping(mapping, size)},
              {kHeldFirst, one, small},
              {kSmall, small, both(small, one)},
              {kHeld, one, both(small, one)},
              {kSmallUnix, small_unix, both(small_unix, one_unix)},
              {kHeldUnix, one_unix, both(small_unix, one_unix)}};
    std::vector<std::shared_ptr<PythonPeer>> peers;
    for (const auto& [name, role] : {std::pair(kTorch, "torch"), std::pair(kRay, "ray")}) {
        const auto peer = PythonPeer::start(settings.python, role, size);
        if (peer == nullptr) continue;
        rows.push_back({name, [peer](Read what) { return peer->round(what == Read::all ? "all" : "first"); }});
    }
    report.group("held tensor of " + words(size) + ", until its first element is there");
    rows.insert(rows.begin() + 4, {kRound, rounds_of_ours(clients.tcp, size)});
    const auto first = measure(rows, Read::first, 500);
    print(report, rows, first);
    for (const auto& [call, tensor] : {std::pair(kSmall, kHeld), std::pair(kSmallUnix, kHeldUnix)})
        report.target({std::string(tensor) + " / small call", first.at(tensor).median() / first.at(call).median(),
                       Target::Bound::at_most, 1.3});
    std::erase_if(rows, [](const Row& row) { return row.name == kRound || row.name == kHeldFirst; });
    report.group("held tensor of " + words(size) + ", until all of it is summed");
    print(report, rows, measure(rows, Read::all, size > (std::size_t{256} << 20) ? 15 : 100));
}

Measured copy(std::size_t size) {
    const auto from = std::make_shared<std::vector<char>>(size, 1), to = std::make_shared<std::vector<char>>(size, 2);
    return [=](Read) {
        const auto start = Clock::now();
        std::memcpy(to->data(), from->data(), size);
        const double micros = micros_since(start);
        require((*to)[size - 1] == 1, "a wrong copy");
        return micros;
    };
}

void fresh(Report& report, const Clients& clients, std::size_t size) {
    const Rows rows{{kCopy, copy(size)},
                    {kSmall, small_call(clients.tcp)},
                    {kFresh, ours(clients.tcp, "fresh", size)},
                    {kBorn, ours(clients.tcp, "born", size)}};
    report.group("fresh result of " + words(size) + ", until its first element is there");
    const auto samples = measure(rows, Read::first, 100);
    print(report, rows, samples);
    report.target({"(fresh result - small call) / memcpy",
                   (samples.at(kFresh).median() - samples.at(kSmall).median()) / samples.at(kCopy).median(),
                   Target::Bound::at_most, 1.3});
}

}  // namespace

void memory(Report& report, const Settings& settings) {
    const Clients clients(settings.folder);
    for (const std::size_t size : {std::size_t{4} << 10, std::size_t{64} << 20, std::size_t{1} << 30})
        held(report, settings, clients, size);
    fresh(report, clients, std::size_t{64} << 20);
}

}  // namespace bench
