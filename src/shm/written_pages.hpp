#pragma once

#include <cstddef>

namespace shared_tensor::shm {

/// How the kernel is asked about pages.
enum class PageTable {
    scanned,  ///< ioctl PAGEMAP_SCAN, since Linux 6.7: names those in question only
    read      ///< /proc/self/pagemap, an entry for each
};

/// The better way that there is here; without both (no /proc), PageTable::read.
PageTable best_page_table();

/// Of a private mapping of a file, drops the pages that were written, and only those: the file's bytes are seen again,
/// and the other pages stay warm. Without access to the page table drops all.
/// `data` is at the start of a page and `bytes` are whole pages; nobody may use them meanwhile.
/// Takes some 2 us per MiB that was touched.
void drop_written_pages(std::byte* data, std::size_t bytes, PageTable how);

/// The same where it takes some us only, because little of it was touched. False where that is not so: what was written
/// may be there still.
bool drop_written_pages_if_few(std::byte* data, std::size_t bytes, PageTable how);

/// Of a private mapping of a file, gives this process its own copy of each page that the bytes lie in, in place: what
/// is written to the file from now on is not seen there. Other threads may read and write the bytes meanwhile. Takes as
/// long as a copy into new memory. Throws std::bad_alloc.
void own_pages(std::byte* data, std::size_t bytes);

/// The same for kernels before 5.14, one page after another.
void own_pages_by_touch(std::byte* data, std::size_t bytes);

}  // namespace shared_tensor::shm
