/* Functions whose version in a new C library would keep packages from machines with an older one, by the version that all
 * have. They differ in how errors are told (errno), which nobody here looks at.
 *
 * The linker puts __wrap_NAME in the place of NAME (--wrap=NAME); xtask/src/package/glibc.rs has the list. */

#if defined(__x86_64__)
#define FIRST "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define FIRST "GLIBC_2.17"
#endif

/* glibc 2.35 has another one. */
extern double first_hypot(double, double);
__asm__(".symver first_hypot, hypot@" FIRST);
double __wrap_hypot(double x, double y) { return first_hypot(x, y); }
