import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Semaphore;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Copies the queues of a topic to the queues with the same numbers at another cluster until it is killed: batches as they
 * are pulled, one in flight for each queue. Arguments: name servers of source and target, topic, topic at the target, most
 * messages of a pull.
 */
public class Copier {
    private static final Set<String> STORED_BY_BROKER = Set.of("CLUSTER", "MSG_REGION", "TRACE_ON");

    public static void main(String[] arguments) throws Exception {
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> {
            error.printStackTrace();
            System.exit(1);
        });
        String topic = arguments[2], to = arguments[3];
        int most = Integer.parseInt(arguments[4]);
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("bench-copier");
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setInstanceName("source");
        consumer.setAutoCommit(false);
        consumer.setPullBatchSize(most);
        consumer.setPullThresholdForQueue(8 * most);
        consumer.setPullThresholdForAll(64L * most);
        DefaultMQProducer producer = new DefaultMQProducer("bench-copier");
        producer.setNamesrvAddr(arguments[1]);
        producer.setInstanceName("target");
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        consumer.start();
        producer.start();
        Map<Integer, MessageQueue> target = new HashMap<>();
        Map<Integer, Semaphore> free = new HashMap<>();
        for (MessageQueue queue : producer.fetchPublishMessageQueues(to)) {
            target.put(queue.getQueueId(), queue);
            free.put(queue.getQueueId(), new Semaphore(1));
        }
        List<MessageQueue> queues = new ArrayList<>(consumer.fetchMessageQueues(topic));
        consumer.assign(queues);
        for (MessageQueue queue : queues) {
            consumer.seekToBegin(queue);
        }
        while (true) {
            List<MessageExt> pulled = consumer.poll(100);
            if (pulled.isEmpty()) {
                continue;
            }
            int number = pulled.get(0).getQueueId();
            List<Message> copies = new ArrayList<>(pulled.size());
            for (MessageExt message : pulled) {
                copies.add(copy(message, to));
            }
            Semaphore one = free.get(number);
            one.acquire();
            send(producer, copies, target.get(number), one);
        }
    }

    /** Sends a batch again if the target was busy, as the Java client does for requests that a caller waits for. */
    private static void send(DefaultMQProducer producer, List<Message> copies, MessageQueue queue, Semaphore free)
            throws Exception {
        producer.send(copies, queue, new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                free.release();
            }

            @Override
            public void onException(Throwable error) {
                error.printStackTrace();
                try {
                    send(producer, copies, queue, free);
                } catch (Exception again) {
                    again.printStackTrace();
                    System.exit(1);
                }
            }
        });
    }

    private static Message copy(MessageExt message, String to) {
        Message copy = new Message(to, message.getBody());
        copy.setFlag(message.getFlag());
        for (Map.Entry<String, String> property : message.getProperties().entrySet()) {
            if (!STORED_BY_BROKER.contains(property.getKey())) {
                MessageAccessor.putProperty(copy, property.getKey(), property.getValue());
            }
        }
        MessageAccessor.putProperty(copy, "ROCKETMQ_REPLICATOR_SOURCE", "source");
        return copy;
    }
}
