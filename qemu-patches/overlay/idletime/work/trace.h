#include "trace/trace-idletime_work.h"
