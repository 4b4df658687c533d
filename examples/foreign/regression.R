# Score a model in R: a linear regression for each step, without any package.
#
#   costar inspect data.h5 --export tables --format csv && Rscript regression.R tables mine.csv
#   costar score mine.csv --data data.h5
#
# It regresses the logarithm of the outcome on that of the last value and on the treatments of the plan so far.

words <- commandArgs(trailingOnly = TRUE)
table <- read.csv(file.path(words[1], "table.csv"))
queries <- read.csv(file.path(words[1], "queries.csv"))
outcome <- "tumour_volume"
treatments <- c("chemotherapy", "radiotherapy")

train <- table[table$domain == "source" & table$split == "train", ]
train <- train[order(train$subject, train$time), ]

# Sums of treatments over the first `steps` steps from each row on, and the outcome after them.
ahead <- function(steps) {
  rows <- seq_len(nrow(train) - steps)
  same <- train$subject[rows] == train$subject[rows + steps]
  given <- sapply(treatments, function(name) {
    total <- c(0, cumsum(train[[name]]))
    total[rows + steps] - total[rows]
  })
  data.frame(last = train[[outcome]][rows], given, after = train[[outcome]][rows + steps])[same, ]
}

last <- setNames(table[[outcome]], paste(table$subject, table$time))
queries <- queries[order(queries$set, queries$query, queries$step), ]
number <- paste(queries$set, queries$query)
planned <- data.frame(last = last[paste(queries$subject, queries$origin)])
for (name in treatments) planned[[name]] <- ave(queries[[name]], number, FUN = cumsum)

queries$estimate <- NA
queries$sd <- NA
for (steps in unique(queries$step)) {
  fit <- lm(log1p(after) ~ log1p(last) + chemotherapy + radiotherapy, data = ahead(steps))
  rows <- queries$step == steps
  queries$estimate[rows] <- expm1(predict(fit, planned[rows, ]))
  queries$sd[rows] <- (1 + queries$estimate[rows]) * summary(fit)$sigma # by the slope of the exponential
}
write.csv(queries[, c("set", "query", "step", "estimate", "sd")], words[2], row.names = FALSE)
