#include "server/state/record_file.hpp"

#include <sys/mman.h>

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <iterator>
#include <memory>
#include <random>
#include <set>
#include <string>

#include "base/system/descriptor_store.hpp"
#include "base/system/unique_fd.hpp"

using namespace shared_tensor;
using server::RecordFile;

TEST_CASE("where there is no room for another record, all can be erased, again and again", "[state]") {
    const auto memory = std::make_shared<const UniqueFd>(::memfd_create("records", MFD_CLOEXEC));
    RecordFile records(memory, std::size_t{2} << 20);
    int count = 0;
    std::set<int> held;
    const auto fill = [&] {
        for (const std::size_t size : {60'000, 8'000, 1'000, 1}) {
            try {
                for (;; ++count) {
                    records.put('n', std::to_string(count), std::string(size, 'a'));
                    held.insert(count);
                }
            } catch (const NotStored&) {  // smaller ones may still find room
            }
        }
    };
    std::minstd_rand random(1);
    for (int round = 0; round < 300; ++round) {
        fill();
        for (int i = 0; i < 1 + round % 3; ++i) {
            const auto one = std::next(held.begin(), static_cast<std::ptrdiff_t>(random() % held.size()));
            REQUIRE_NOTHROW(records.erase('n', std::to_string(*one)));
            held.erase(one);
        }
    }
    CHECK(count > 300);
    for (const int one : held)
        REQUIRE_NOTHROW(records.erase('n', std::to_string(one)));
    CHECK_NOTHROW(records.put('n', "again", std::string(60'000, 'a')));
    CHECK(records.bytes() <= std::size_t{3} << 20);
}
