#include "trace/trace-idletime.h"
